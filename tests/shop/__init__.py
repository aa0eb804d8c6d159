"""Tests of the example shop, and of the guide docs/integrate.md."""

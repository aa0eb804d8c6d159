"""The fallback to the old service: versions that only it has, while people move over."""

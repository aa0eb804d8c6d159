"""What only some may read: marked parts of documents, replaced by tokens for everybody else."""

from history.masking.mask import (
    Mask,
    is_token,
    leads_into_mark,
    mask_of,
    searchable_keys,
    shown,
    stored_mask,
)
from history.masking.viewer import UNMASK, VIEW, Viewer, holds

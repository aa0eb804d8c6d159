"""What only some may read: marked parts of documents, replaced by tokens for everybody else."""

from history.masking.documents import Mask, mask_of, stored_mask
from history.masking.hidden import leads_into_mark, searchable_keys
from history.masking.reader import UNMASK, VIEW, holds, in_clear, read_by
from history.masking.token import is_token, shown
from history.masking.unmasking import record_unmasking

__all__ = [
    "UNMASK",
    "VIEW",
    "Mask",
    "holds",
    "in_clear",
    "is_token",
    "leads_into_mark",
    "mask_of",
    "read_by",
    "record_unmasking",
    "searchable_keys",
    "shown",
    "stored_mask",
]

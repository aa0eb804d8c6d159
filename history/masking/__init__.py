"""What only some may read: marked parts of documents, replaced by tokens for everybody else."""

from history.masking.documents import Mask, leads_into_mark, mask_of, searchable_keys, stored_mask
from history.masking.reader import UNMASK, VIEW, Viewer, holds
from history.masking.token import is_token, shown

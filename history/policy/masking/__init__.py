"""Masking: replaces the marked parts of snapshots by tokens, unless the viewer may read them.

Begin with mask.py. marks.py finds the marked parts, viewer.py says what a viewer may read.
"""

from history.policy.masking.mask import (
    KindMask,
    get_viewer_mask,
    is_path_into_mark,
    is_token,
    list_searchable_keys,
    load_stored_mask,
    shorten_token,
)
from history.policy.masking.viewer import (
    UNMASK,
    VIEW,
    Viewer,
    has_explicit_permission,
)

"""What a viewer may see of the history: need-to-know, masks, and the record of what was seen.

Begin with need_to_know.py (which documents a viewer may see) and masking/ (which of their fields).
access_record.py collects, for one request, what the access journal writes about it.
"""

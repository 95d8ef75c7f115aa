"""Models: `gateway` is the Model port, `offline` the model without a network, `json_reply` reads answers.

Exports nothing here, so that whoever needs one module does not load the others.
"""

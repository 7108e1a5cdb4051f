"""The paper's experiments as a harness: tables in, one row of results a run out.

``dataset`` (and ``folder``, ``openml``, ``synthetic``): where tables come from. ``protocols`` and ``methods``: what is
run. ``split``, ``run`` and ``metrics``: one run. ``store``, ``worker`` and ``campaign``: many runs, none lost.
"""

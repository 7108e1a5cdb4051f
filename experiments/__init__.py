"""The paper's experiments: tables in, a row of results for each run out, and a report of them.

``sources`` (``folder``, ``openml``, ``synthetic``) say where tables come from, ``protocols`` and
``methods`` what is run. ``run`` does one run, ``campaign`` many; ``store`` keeps the rows.
``statistics`` and ``report`` turn rows into tables, tests and figures.

Only public names of ``crumb`` are used here, and nothing in ``crumb`` knows of this package.
"""

"""The HTTP service around ``CrumbOnline``: ``crumb serve``. Needs the extra ``serve``."""

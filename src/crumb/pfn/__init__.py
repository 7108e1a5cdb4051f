"""Back-ends: the models that CRUMB hands its contexts to.

=============  =================================================================================
base           the protocol: tasks in, answers out; what all back-ends with a checkpoint share
models         which models there are, where the file of one is, whether it is sound, what runs it
package_index  a file out of a source distribution, by pip
contexts       a table as numbers, once; contexts are slices of them, and go together, or once more
tabicl         TabICL and the embedded networks. On a GPU many contexts share a pass, on a CPU they
               go side by side: fused stacks them, preprocess prepares their rows, forward is the
               way through the network, architecture builds it. Only tabicl_package imports the
               package's inside
tabpfn         TabPFN
tabpfn_v1      TabPFN v1, its network included
sklearn        any scikit-learn estimator
=============  =================================================================================
"""

from crumb.pfn.base import Backend, BackendSettings, Call, ContextTask, Output
from crumb.pfn.models import resolve_backend

__all__ = ["Backend", "BackendSettings", "Call", "ContextTask", "Output", "resolve_backend"]

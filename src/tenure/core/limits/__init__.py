"""Every limit and every default, with its unit in the name and its reason beside it.

One file for each noun; import them from here. Durations are milliseconds. `MAX` or `MIN` in a name
limits a request or the work that is done at once; other names are defaults or fixed sizes. Settings
may replace defaults, not formats.
"""

from tenure.core.limits.access import *
from tenure.core.limits.admission import *
from tenure.core.limits.batch import *
from tenure.core.limits.doctor import *
from tenure.core.limits.endpoint import *
from tenure.core.limits.fire import *
from tenure.core.limits.http import *
from tenure.core.limits.request import *
from tenure.core.limits.run import *
from tenure.core.limits.schedule import *
from tenure.core.limits.seat import *
from tenure.core.limits.service import *
from tenure.core.limits.statistics import *
from tenure.core.limits.task import *
from tenure.core.limits.unit import DAY_MS as DAY_MS
from tenure.core.limits.unit import MINUTE_MS as MINUTE_MS
from tenure.core.limits.worker import *

"""All that memplan can find, by code; ``memplan explain CODE`` prints it."""

from collections.abc import Mapping

from memplan.findings.records import AuditRule, Rule
from memplan.findings.tables import audit, estimate, leaks, monitor

ESTIMATE: Mapping[str, Rule] = {rule.code: rule for rule in estimate.TABLE}
"""Of verdicts and the gate."""
AUDIT: Mapping[str, AuditRule] = {rule.code: rule for rule in audit.TABLE}
"""Of the audit of source code."""
MONITOR: Mapping[str, Rule] = {rule.code: rule for rule in monitor.TABLE}
"""Of the monitor."""
LEAKS: Mapping[str, Rule] = {rule.code: rule for rule in leaks.TABLE}
"""Of leak detection."""
RULES: Mapping[str, Rule] = {**ESTIMATE, **AUDIT, **MONITOR, **LEAKS}
"""Of everybody."""
UNUSED = "MA099"
"""The rule about comments that excuse nothing."""

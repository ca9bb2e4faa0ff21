"""The JSON report of ``memplan doctor``."""

from memplan.contract.document import Document, head
from memplan.contract.table import Table
from memplan.doctor.records import Checkup

DOCUMENT = Document(name="doctor", root=Checkup, tables={Checkup: Table(keys=head("doctor"))})

"""moto's server on a port of loopback, with what it gets wrong of this module's resources put right.

    moto_server.py PORT
"""

import sys
import uuid

from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.ec2.models import ec2_backends
from moto.ec2.models.instances import Instance
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.responses.monitoring import Monitoring
from moto.ssm.responses import SimpleSystemManagerResponse
from moto.server import main

credits = {}
associations = {}

run_instances = InstanceResponse.run_instances
prep_nics = Instance.prep_nics


def run_and_remember_credits(self):
    """moto answers `standard`, whatever was asked for."""
    before = {instance.id for instance in self.ec2_backend.all_instances()}
    answer = run_instances(self)
    mode = self._get_param("CreditSpecification.CpuCredits")
    for instance in self.ec2_backend.all_instances():
        if instance.id not in before and mode:
            credits[instance.id] = mode
    return answer


def describe_credits(self):
    ids = self._get_param("InstanceIds", [])
    return ActionResult(
        {"InstanceCreditSpecifications": [{"InstanceId": id, "CpuCredits": credits.get(id, "standard")} for id in ids]}
    )


def prep_nics_and_show_groups(self, nic_spec, *rest, **named):
    """Groups that come with the first network interface are the instance's, too."""
    prep_nics(self, nic_spec, *rest, **named)
    if not self.security_groups and 0 in self.nics:
        self.security_groups = list(self.nics[0].group_set)


def set_monitoring(state):
    """Detailed monitoring: not there in moto."""

    def change(self):
        ids = self._get_param("InstanceIds", []) or list(self._get_multi_param("InstanceId"))
        for id in ids:
            self.ec2_backend.get_instance(id).monitoring_state = state
        monitorings = [{"InstanceId": id, "Monitoring": {"State": state}} for id in ids]
        return ActionResult({"InstanceMonitorings": monitorings})

    return change


def keep_association(self):
    """Associations of Systems Manager are not there in moto. Nothing is run."""
    names = ["Name", "AssociationName", "Targets", "Parameters"]
    id = self._get_param("AssociationId") or str(uuid.uuid4())
    associations[id] = {"AssociationId": id, **{name: self._get_param(name) for name in names}}
    return described(id)


def described(id):
    if id not in associations:
        raise JsonRESTError("AssociationDoesNotExist", id)
    return ActionResult({"AssociationDescription": associations[id]})


def forget_association(self):
    associations.pop(self._get_param("AssociationId"))
    return ActionResult({})


InstanceResponse.run_instances = run_and_remember_credits
InstanceResponse.describe_instance_credit_specifications = describe_credits
Instance.prep_nics = prep_nics_and_show_groups
SimpleSystemManagerResponse.create_association = keep_association
SimpleSystemManagerResponse.update_association = keep_association
SimpleSystemManagerResponse.describe_association = lambda self: described(self._get_param("AssociationId"))
SimpleSystemManagerResponse.delete_association = forget_association
SimpleSystemManagerResponse.list_associations = lambda self: ActionResult({"Associations": list(associations.values())})
Monitoring.monitor_instances = set_monitoring("enabled")
Monitoring.unmonitor_instances = set_monitoring("disabled")

if __name__ == "__main__":
    main(["--host", "127.0.0.1", "--port", sys.argv[1]])

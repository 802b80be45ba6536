# `apply` ends when the gateway answers, or says that it does not. What depends on this moves only then: the address,
# and the end of the instance before.
resource "aws_ssm_association" "ready" {
  count                            = var.wait_for_ready ? 1 : 0
  name                             = "AWS-RunShellScript"
  association_name                 = "${var.name}-ready"
  wait_for_success_timeout_seconds = 2700

  targets {
    key    = "InstanceIds"
    values = [aws_instance.gateway.id]
  }

  parameters = {
    # cloud-init alone does not tell: after a reboot in the first boot it takes its commands for done.
    commands         = "cloud-init status --wait; until grep -q '^ready\\|^failed' /var/lib/bifrost/boot-state; do sleep 5; done; cat /var/lib/bifrost/boot-state; grep -q ^ready /var/lib/bifrost/boot-state && systemctl is-active bifrost.service"
    executionTimeout = "2400"
  }

  lifecycle {
    # The provider waits for a new association only, and not for one that it points at another instance.
    replace_triggered_by = [aws_instance.gateway.id]
  }
}

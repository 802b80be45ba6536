"""A provider that knows its schema and nothing else: enough to validate, and to plan with `mock_provider`.

    provider_stub.py schema.json   serves until its standard input ends; prints what TF_REATTACH_PROVIDERS has to be
"""

import json
import os
import sys
from concurrent import futures

import grpc
from tf.gen import tfplugin_pb2 as wire
from tf.gen import tfplugin_pb2_grpc as service

NESTING = {"single": 1, "list": 2, "set": 3}  # of tfplugin6's Schema.NestedBlock.NestingMode


def block(schema):
    attributes = [
        wire.Schema.Attribute(
            name=name,
            type=json.dumps(attribute["type"]).encode(),
            required=attribute.get("required", False),
            optional=attribute.get("optional", False),
            computed=attribute.get("computed", False),
        )
        for name, attribute in schema["attributes"].items()
    ]
    blocks = [
        wire.Schema.NestedBlock(
            type_name=name,
            nesting=NESTING[inner["nesting"]],
            max_items=0 if inner["many"] or inner["nesting"] == "single" else 1,
            block=block(inner["block"]),
        )
        for name, inner in schema["blocks"].items()
    ]
    return wire.Schema.Block(attributes=attributes, block_types=blocks)


class Stub(service.ProviderServicer):
    def __init__(self, schemas):
        schema = lambda found: wire.Schema(version=0, block=block(found))
        self.answer = wire.GetProviderSchema.Response(
            provider=schema(schemas["provider"]),
            resource_schemas={name: schema(found) for name, found in schemas["resource"].items()},
            data_source_schemas={name: schema(found) for name, found in schemas["data"].items()},
        )

    def GetProviderSchema(self, request, context):
        return self.answer

    def ValidateProviderConfig(self, request, context):
        return wire.ValidateProviderConfig.Response()

    def ConfigureProvider(self, request, context):
        return wire.ConfigureProvider.Response()

    def ValidateResourceConfig(self, request, context):
        return wire.ValidateResourceConfig.Response()

    def ValidateDataResourceConfig(self, request, context):
        return wire.ValidateDataResourceConfig.Response()

    def StopProvider(self, request, context):
        return wire.StopProvider.Response()


def main(path):
    with open(path) as file:
        stub = Stub(json.load(file))
    server = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.max_send_message_length", 64 << 20)])
    service.add_ProviderServicer_to_server(stub, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    attached = {
        "Protocol": "grpc",
        "ProtocolVersion": 6,
        "Pid": os.getpid(),
        "Test": True,
        "Addr": {"Network": "tcp", "String": f"127.0.0.1:{port}"},
    }
    print(json.dumps({"registry.terraform.io/hashicorp/aws": attached}), flush=True)
    sys.stdin.read()
    server.stop(0)


if __name__ == "__main__":
    main(sys.argv[1])

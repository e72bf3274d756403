"""A client that sends back what it got."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, _: Context) -> Message:
    arrays = message.content["arrays"]
    assert isinstance(arrays, ArrayRecord)
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})
    return Message(content=content, reply_to=message)

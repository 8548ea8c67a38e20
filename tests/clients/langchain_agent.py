"""A LangChain agent on an OpenAI model, run by tests/it/agents/openai.rs.

Environment: BASE_URL (with /v1), MODE (chat or responses, streamed as the library likes), PROMPT.
It prints one JSON object: the last text, and the results of the commands.
"""

import json
import os
import subprocess

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

results = []


@tool
def bash(command: str) -> str:
    """Run a command in a shell."""
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=20)
    results.append({"command": command, "code": done.returncode})
    output = done.stdout + done.stderr
    return output if done.returncode == 0 else f"Error: exit code {done.returncode}\n{output}"


SYSTEM = "You are an agent under test.\n" + "\n".join(
    f"Rule {n}: when step {n} is asked for, do it once, report what came out, then go on." for n in range(1, 401)
)
model = ChatOpenAI(
    model="gpt-6-sol",
    base_url=os.environ["BASE_URL"],
    api_key="sk-test-key-not-a-secret",
    use_responses_api=os.environ["MODE"] == "responses",
    streaming=os.environ["MODE"] == "chat",
)
agent = create_agent(model, tools=[bash], system_prompt=SYSTEM)
done = agent.invoke({"messages": [{"role": "user", "content": os.environ["PROMPT"]}]})
answers = [message.text for message in done["messages"] if message.type == "ai"]
print(json.dumps({"answers": answers, "results": results}))

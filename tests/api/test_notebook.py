"""A notebook that runs ``memplan.estimate`` shows its page below the cell."""

import json
import sys

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

CELL = """
import torch
import memplan
memplan.estimate(torch.nn.Linear(64, 64), torch.zeros(8, 64), loss="sum", gpu="t4")
"""
BLOCK = """
import torch
import memplan
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters())
with memplan.on("t4") as cell:
    while True:
        model(torch.zeros(8, 64, device="cuda")).sum().backward()
        optimizer.step()
cell.estimate
"""


@pytest.mark.slow
@pytest.mark.parametrize("code", [CELL, BLOCK])
def test_an_estimate_at_the_end_of_a_cell_is_a_page(tmp_path, monkeypatch, code) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    kernel = tmp_path / "kernels" / "here"
    kernel.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "here"}))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbclient.NotebookClient(notebook, kernel_name="here", timeout=300).execute()
    [shown] = [output for output in notebook.cells[0].outputs if output.output_type == "execute_result"]
    assert shown.data["text/html"].startswith("<iframe srcdoc=")
    assert "FITS" in shown.data["text/html"]

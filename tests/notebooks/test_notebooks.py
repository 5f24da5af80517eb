"""Every notebook runs from its text form to the end, on results that it makes itself."""

from pathlib import Path
from tests.paths import ROOT

import pytest



@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.py")), ids=lambda path: path.stem)
def test_notebook_runs_from_start_to_end(path, tmp_path, monkeypatch):
    jupytext = pytest.importorskip("jupytext")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("TWINSERVE_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    notebook = jupytext.read(path)
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute(cwd=str(ROOT))

    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells
    assert all(cell.execution_count for cell in cells)
    images = [output for cell in cells for output in cell.outputs if "image/png" in output.get("data", {})]
    assert len(images) >= 4


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.py")), ids=lambda path: path.stem)
def test_notebook_source_compiles_and_is_paired(path):
    text = path.read_text(encoding="utf-8")
    compile(text, str(path), "exec")
    assert "formats: ipynb,py:percent" in text

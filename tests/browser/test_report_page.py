"""The page of a job, opened from disk in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import axe_core_python
import pytest
from page_job import HOSTILE, write_job
from selenium.webdriver import Keys

from pytest_benchflow.reporting import ComparedJobs, read_report, write_comparison, write_html

if TYPE_CHECKING:
    from driver import Browser

AXE = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text("utf-8")
CACHE = "tasks%2Fcache%2Ftask.toml%3A%3A"
SIDE = f"#/side/{CACHE}gemini/{CACHE}codex"
CHECKED = "#/rollout/tasks%2Fsort-words%2Ftask.toml%3A%3Agemini"


def rows(browser: Browser) -> list[str]:
    """Return the tasks in the table of rollouts, in order."""
    return [text.partition("reward")[0] for text in browser.texts("table.rollouts td:nth-child(2)")]


def violations(browser: Browser) -> list[str]:
    """Return what axe finds that would stop somebody from using the page."""
    browser.run(AXE)
    script = (
        "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then((r) => done(r.violations))"
    )
    found = browser.driver.execute_async_script(script)
    return [
        f"{each['id']}: {each['help']}: {each['nodes'][0]['html'][:200]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


def test_the_overview_says_what_came_out(browser: Browser, page: str) -> None:
    browser.open(page)
    cards = dict(zip(browser.texts(".card dt"), browser.texts(".card dd:first-of-type"), strict=True))
    assert cards["Pass rate"] == "56%"
    assert (cards["Rollouts"], cards["Errors"]) == ("10", "1")
    assert browser.texts(".outcomes .legend a") == ["5 passed", "4 failed", "1 error"]
    assert [text.startswith("gemini / flash") for text in browser.texts("table.groups td.name")].count(True) == 1
    lost, cheated = browser.texts(".alert")
    assert lost == "1 rollout never rantasks/lost/task.toml::gemini"
    assert "1 rollout tripped a defence: cheater" in cheated
    assert browser.texts("[aria-labelledby=gates] td") == ["fails", "pass_rate >= 0.9", "0.56 (5 of 9)"]
    assert browser.texts("[aria-labelledby=gates] .sub")[0].startswith("decided early: 4 of 14 rollouts")
    assert "no evidence" in browser.texts("[aria-labelledby=verdicts] .chip")
    assert len(rows(browser)) == 10
    assert browser.run("return document.title") == "nightly"


def test_nothing_is_asked_for_but_the_page_itself(browser: Browser, page: str) -> None:
    browser.open(page)
    browser.go(CHECKED)
    browser.wait(".event")
    browser.watch()
    assert [url.partition("#")[0] for url in browser.requests] == [page]


def test_rollouts_are_searched_filtered_and_sorted_and_the_address_keeps_it(browser: Browser, page: str) -> None:
    browser.open(page)
    browser.wait("#search").send_keys("sql")
    assert rows(browser) == ["sql-report"] * 2
    browser.wait("[data-status=failed]").click()
    assert browser.texts("table.rollouts td:nth-child(3)") == ["codex / mini"]
    assert browser.wait("#said").text == "1 of 10 rollouts"
    address = str(browser.run("return location.href"))
    browser.open(address)
    assert rows(browser) == ["sql-report"]
    assert browser.wait("#search").get_property("value") == "sql"
    browser.open(f"{page}#/?group=codex+%2F+mini")
    browser.all("table.rollouts th button")[3].click()
    assert browser.texts("table.rollouts td:nth-child(4)") == ["0.25", "0.50", "0.50", "1.00"]
    browser.all("table.rollouts th button")[3].click()
    assert browser.texts("table.rollouts td:nth-child(4)") == ["1.00", "0.50", "0.50", "0.25"]
    browser.open(f"{page}#/?q=nothing+like+this")
    assert browser.texts("table.rollouts tbody td") == ["No rollout matches."]


def test_a_rollout_is_readable_turn_by_turn(browser: Browser, page: str) -> None:
    browser.open(f"{page}{CHECKED}")
    assert browser.texts("h1") == ["sort-words"]
    assert browser.texts(".event .who") == ["Prompt", "Thought", "execute", "edit", "read", "Agent", "End of turn"]
    assert browser.texts(".event.user li") == ["keep case", "no duplicates"]
    assert browser.texts(".event.agent .prose > *") == ["The words are sorted, each once.", "print('done')"]
    assert browser.texts(".event .took") == ["0.3 s"]
    assert [each.get_attribute("class") for each in browser.all(".diff .lines > div")] == [
        "same", "del", "add", "same", "add"
    ]  # fmt: skip
    assert browser.texts(".diff .del") == ["−removed: two"]
    assert browser.texts(".diff .add") == ["+added: 2", "+added: four"]
    assert browser.texts("details[open] .who") == ["edit", "read"]
    browser.all("details.event summary")[1].click()
    browser.wait("details.event[open] pre", "total 4")
    assert browser.texts("#event-4 pre") == ["ls -l", "total 4\na.py"]
    assert "3 checks" in browser.texts("section pre.block")[-2]


def test_checks_criteria_errors_and_findings_are_shown(browser: Browser, page: str) -> None:
    browser.open(f"{page}#/rollout/tasks%2Fcache%2Ftask.toml%3A%3Acodex")
    assert browser.texts(".checks li") == ["✕order", "✕empty_file"]
    assert "reward 0.50 is below 1.00" in browser.texts(".alert.fail")[0]
    browser.go("#/rollout/tasks%2Fessay%2Ftask.toml%3A%3Acodex")
    browser.wait("#criteria")
    assert browser.texts("td.name") == ["clear", "correct"]
    browser.go("#/rollout/tasks%2Fcheater%2Ftask.toml%3A%3Agemini")
    assert "looked for the tests in /proc/1/root" in browser.wait(".alert.cheat").text
    browser.go("#/rollout/tasks%2Fbroken-image%2Ftask.toml%3A%3Agemini")
    assert "build error in start" in browser.wait(".alert strong").text


def test_a_link_to_an_event_goes_there(browser: Browser, page: str) -> None:
    browser.open(f"{page}{CHECKED}/event/5")
    browser.wait("#event-5.here")
    assert browser.run("return document.activeElement.closest('.event').id") == "event-5"
    box = browser.run("const box = arguments[0].getBoundingClientRect(); return [box.top, box.bottom, innerHeight]",
                      browser.wait("#event-5"))  # fmt: skip
    top, bottom, height = box  # type: ignore[misc]
    assert 0 <= top < bottom <= height
    browser.open(f"{page}#/rollout/no-such-thing")
    assert browser.texts("h1") == ["No such rollout"]


def test_everything_is_reached_with_the_keyboard(browser: Browser, page: str) -> None:
    browser.open(page)
    assert browser.tab().text == "Skip to content"
    browser.press("/")
    assert browser.run("return document.activeElement.id") == "search"
    browser.press("cache")
    assert len(rows(browser)) == 2
    browser.press(Keys.ESCAPE)
    browser.wait("table.rollouts a").send_keys(Keys.ENTER)
    browser.wait(".events")
    assert browser.run("return document.activeElement.tagName") == "H1"
    browser.press("j", "j", "j")
    assert browser.run("return document.activeElement.closest('.event').id") == "event-4"
    browser.press("k")
    browser.press(Keys.ENTER)
    browser.wait("#event-2[open]", "I should look first.")
    first = browser.run("return location.hash")
    browser.press("]")
    browser.wait("#crumbs", "cache")
    assert browser.run("return location.hash") != first
    browser.press("u")
    browser.wait("#search")
    assert len(rows(browser)) == 2
    browser.press("?")
    assert browser.wait("dialog[open] h2").text == "Keyboard"
    browser.press(Keys.ESCAPE)
    assert not browser.all("dialog[open]")


def test_light_and_dark_follow_the_system_until_somebody_chooses(browser: Browser, page: str) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    browser.open(page)
    light = browser.run(background)
    browser.open(page, dark=True)
    dark = browser.run(background)
    assert light != dark
    browser.press("d")
    assert browser.run(background) == light
    browser.open(page, dark=True)
    assert browser.run(background) == light
    browser.run("localStorage.clear()")


@pytest.mark.parametrize("address", ["", CHECKED, "#/rollout/hostile"])
def test_a_phone_shows_all_without_scrolling_sideways(browser: Browser, page: str, address: str) -> None:
    if "hostile" in address:
        address = f"#/rollout/{hostile_id(browser)}"
    browser.open(f"{page}{address}", width=360, height=740)
    browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
    assert browser.run("return document.documentElement.scrollWidth") == 360
    wide = "return [...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth)"
    assert browser.run(f"{wide}.map((each) => each.ariaLabel)") == ([] if address else ["Tasks by agent"])


def test_a_dark_page_is_printed_dark_on_light(browser: Browser, page: str) -> None:
    browser.open(page, dark=True)
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    ink = browser.run("return getComputedStyle(document.body).color")
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert ink == "rgb(22, 25, 29)"


def test_of_many_agents_some_are_shown_first(browser: Browser, job: Path) -> None:
    report = read_report(job)
    many = [group.model_copy(update={"model": f"m{n}"}) for n in range(10) for group in report.summary]
    file = job.parent / "many.html"
    write_html(report.model_copy(update={"summary": many}), file)
    browser.open(file.as_uri())
    shown = "return [...document.querySelectorAll('table.groups tbody tr')].filter((each) => !each.hidden).length"
    assert browser.run(shown) == 16
    browser.wait("button.more", "Show all 30").click()
    assert browser.run(shown) == 30
    assert browser.texts("[aria-labelledby=rewards] .legend span")[-1].endswith(" others")


def test_a_report_without_rollouts_says_so(browser: Browser, job: Path, tmp_path: Path) -> None:
    report = read_report(job)
    write_html(report.model_copy(update={"rollouts": [], "summary": []}), tmp_path / "empty.html")
    browser.open((tmp_path / "empty.html").as_uri())
    assert browser.texts("main .empty") == ["This report has no rollouts."]


def hostile_id(browser: Browser) -> str:
    return str(browser.run("return encodeURIComponent(arguments[0])", f"tasks/{HOSTILE}/task.toml::{HOSTILE}"))


def test_what_an_agent_wrote_is_text_and_nothing_else(browser: Browser, page: str) -> None:
    browser.open(page)
    assert HOSTILE[:100] in "".join(browser.texts("table.rollouts td"))
    browser.open(f"{page}#/rollout/{hostile_id(browser)}")
    browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
    browser.wait(".event pre", HOSTILE)
    text = browser.texts("main")[0]
    assert text.count(HOSTILE) >= 10
    assert not browser.all("main script, main img, main style, main iframe, main [onload], main [onerror]")
    links = browser.run("return [...document.querySelectorAll('main a')].map((each) => each.getAttribute('href'))")
    assert isinstance(links, list)
    assert all(link.startswith("#/") for link in links)
    assert browser.run("return window.hacked") is None
    assert "red link⟦0007⟧ safe⟦202e⟧gpj.exe⟦2066⟧⟦0000⟧⟦0008⟧ ⟦200b⟧zero" in text
    for character in "\u202e\u2066\x00\x1b\u200b":
        assert character not in text


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("address", ["", CHECKED, SIDE])
def test_axe_finds_nothing_serious(browser: Browser, page: str, address: str, dark: bool) -> None:
    browser.open(f"{page}{address}", dark=dark)
    browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
    assert not violations(browser), json.dumps(violations(browser), indent=1)


def test_axe_finds_nothing_serious_in_tables_that_are_cards(browser: Browser, page: str) -> None:
    browser.open(page, width=390, height=780)
    assert not violations(browser), json.dumps(violations(browser), indent=1)


def test_compared_jobs_lead_to_trajectories_side_by_side(browser: Browser, job: Path) -> None:
    other = job.parent / "tuesday"
    if not other.exists():
        write_job(other, worse="cache")
    page = job.parent / "compare.html"
    write_comparison(ComparedJobs.of([(path, read_report(path)) for path in (job, other)]), page)
    browser.open(page.as_uri())
    assert browser.texts("h1") == ["nightly → tuesday"]
    assert browser.texts("#moved") == ["1 task changed"]
    assert "no evidence" in browser.texts("[aria-labelledby=verdicts] .chip")
    assert not violations(browser)
    browser.wait("[aria-labelledby=moved] td.n a").click()
    browser.wait(".side")
    assert browser.texts(".side h2 .chip") == ["passed", "failed"]
    assert [text.split(" / ")[0] for text in browser.texts(".side h2 a")] == ["nightly", "tuesday"]


def test_two_trajectories_are_read_side_by_side(browser: Browser, page: str) -> None:
    browser.open(f"{page}#/rollout/tasks%2Fcache%2Ftask.toml%3A%3Agemini")
    browser.run("const list = document.querySelector('.pager select'); list.selectedIndex = 1; list.onchange;"
                "list.dispatchEvent(new Event('change'))")  # fmt: skip
    browser.wait(".side")
    assert [text.split()[0] for text in browser.texts(".side h2")] == ["gemini", "codex"]
    assert browser.texts(".side .who").count("Prompt") == 2

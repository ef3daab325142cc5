# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from idiolect.record.divergence import Divergence
from idiolect.record.schema import Announced, Gain, Swept
from idiolect.report import build_report, client_table, comparison_table, read
from idiolect.report.wording import NONE, count, megabytes, score_words, size


def _method(summary, name):
    return next(entry for entry in summary["methods"] if entry["method"] == name)


def _best(table, key):
    return set(table.as_dict()["best"][key])


def _set(**means):
    """Give methods these (mean, worst decile) scores; underscores stand for blanks."""

    def change(summary):
        for name, (mean, worst) in means.items():
            _method(summary, name.replace("_", " "))["score"] |= {"mean": mean, "worst_decile": worst}

    return change


def test_best_values_where_higher_is_better(folder, edit_summary):
    edit_summary(folder, _set(local=(0.7, 0.6), fedavg=(0.8, 0.5), personal_heads=(0.75, 0.6)))
    table = comparison_table(folder)
    assert _best(table, "mean") == {"fedavg"}
    assert _best(table, "worst_decile") == {"local", "personal heads"}  # a tie marks both
    assert _best(table, "upload_bytes") == {"local"}  # a cost: the least
    # by block is a fact, not a contest: a method without that block would always win
    assert not {"rounds", "gradients_shared"} & set(table.as_dict()["best"])


def test_best_values_where_lower_is_better(make_run, edit_summary):
    folder = make_run(score="log_loss")
    edit_summary(folder, _set(local=(0.7, 0.9), fedavg=(0.8, 1.0), personal_heads=(0.75, 0.8)))
    table = comparison_table(folder)
    assert _best(table, "mean") == {"local"}
    assert _best(table, "worst_decile") == {"personal heads"}


def test_a_diverged_method_is_never_best(folder, edit_summary):
    edit_summary(folder, _set(**{"fedavg-wild": (0.999, 0.999)}))
    table = comparison_table(folder)
    assert "fedavg-wild" not in _best(table, "mean")
    assert table.answer.best == "personal heads"
    assert "diverged" in table.to_text()


def _sweep(summary):
    """Make of two methods one with two settings, of which validation rows choose the one that is worse on test rows."""
    for name, inside, chosen, validation in (("fedavg", 0.1, True, 0.8), ("personal heads", 0.3, False, 0.7)):
        swept = Swept("fedavg", ("step_size",))
        changes = {"method": f"fedavg[step_size={inside}]", "swept": swept, "chosen": chosen}
        _method(summary, name).update(changes, choosing_mean=validation)


def test_settings_are_chosen_on_validation_rows_and_only_those_contend(folder, edit_summary):
    edit_summary(folder, _set(local=(0.7, 0.6), fedavg=(0.75, 0.5), personal_heads=(0.9, 0.9)))
    edit_summary(folder, _sweep)
    table = comparison_table(folder)
    assert _best(table, "mean") == {"fedavg[step_size=0.1]"}
    assert _best(table, "worst_decile") == {"local"}
    assert table.answer.best == "fedavg[step_size=0.1]"
    said = "Chosen on validation rows: fedavg[step_size=0.1]. fedavg[step_size=0.1] is best on average (accuracy 75.0 %"
    assert table.answer.sentence.startswith(said)
    text = table.to_text()
    assert "\N{CHECK MARK} 80.0" in text
    assert "best of its method on validation rows" in " ".join(text.split())


def test_without_validation_rows_a_sweep_says_what_its_best_is_worth(folder, edit_summary):
    edit_summary(folder, _sweep)
    edit_summary(
        folder, lambda summary: [entry.update(chosen=None, choosing_mean=None) for entry in summary["methods"]]
    )
    table = comparison_table(folder)
    assert table.answer.sentence.startswith("Without validation rows nothing was chosen among the settings")
    assert "\N{CHECK MARK}" not in table.to_text()


def _diverge(name):
    """Leave a method its scores, as a run does, and say that it diverged."""
    return lambda summary: _method(summary, name).update(diverged=Divergence(7, "by round 3"))


def test_a_diverged_method_keeps_its_costs_and_no_score(folder, edit_summary):
    edit_summary(folder, _set(personal_heads=(0.999, 0.999)))
    edit_summary(folder, _diverge("personal heads"))
    table = comparison_table(folder)
    line = next(line for line in table.to_text(width=120).splitlines() if line.startswith("personal heads"))
    # mean, worst tenth, spread; then the verdict in the place of the gain; helped and hurt; the costs stay
    dash = NONE
    wanted = f"personal heads {dash} {dash} {dash} diverged, round 7 {dash} {dash} 50 62.6 31.0 31.0 0/0/640k"
    assert line.split() == wanted.split()
    assert not any("personal heads" in best for best in table.as_dict()["best"].values())
    assert table.answer.best == "fedavg"
    assert table.as_dict()["methods"][2]["mean"] is None
    clients = client_table(read(folder), "personal heads")
    assert (clients.compared, clients.counted("helped"), len(clients)) == (0, 0, 20)
    assert client_table(read(folder), "fedavg").compared == 19  # the others keep theirs


def test_where_training_alone_diverged_nothing_is_gained_against_it(folder, edit_summary):
    edit_summary(folder, _diverge("local"))
    table = comparison_table(folder)
    assert [row["gain"] for row in table.rows] == [None] * 4
    assert "diverged, round 7" in table.to_text()
    assert any(sentence.endswith("'by round 3'.") for sentence in table.run.missing)
    assert "whether clients would do better alone is not known" in table.answer.sentence


@pytest.mark.parametrize(
    ("lost", "sentence", "short"),
    [
        (Divergence(12, "at 3"), "Training diverged in round 12 on client 'at 3'", "diverged, round 12"),
        (Divergence(50), "Training diverged on the server by round 50", "diverged by round 50"),
        (Divergence(1, "a", "; why"), "Training diverged in round 1 on client 'a'; why", "diverged, round 1"),
    ],
)
def test_the_round_in_which_a_method_diverged(lost, sentence, short):
    assert (str(lost), lost.short) == (sentence, short)


def test_a_label_that_looks_like_a_sweep_is_none(folder, edit_summary):
    edit_summary(folder, lambda summary: _method(summary, "fedavg").update(method="fedavg[step_size=0.1]"))
    assert "nothing was chosen among the settings" not in comparison_table(folder).answer.sentence


@pytest.mark.parametrize("details", [False, True])
@pytest.mark.parametrize("width", [60, 80, 120, 140])
def test_text_fits_the_terminal_whatever_the_numbers(make_run, methods, edit_summary, width, details):
    long = [type(methods["fedavg"])(f"fedavg with step size {place}", "local_sgd", lift=-0.11) for place in range(3)]
    folder = make_run(methods=(methods["local"], *long))

    def enlarge(summary):
        for entry in summary["methods"]:
            entry |= {"rounds": 123_456, "upload_bytes": 987_654_321_000, "download_bytes": 987_654_321_000}
            entry |= dict.fromkeys(("gradients_shared", "gradients_personal", "gradients_both"), 98_765_432_100)

    edit_summary(folder, enlarge)
    text = comparison_table(folder).to_text(width, details)
    assert max(map(len, text.splitlines())) <= width
    assert "\N{HORIZONTAL ELLIPSIS}" not in text  # a number that is cut is a wrong number
    assert ("98.8G/98.8G/98.8G" in text) is (details or width == 140)


def test_a_wider_terminal_shows_more_and_80_columns_the_answer(folder):
    table = comparison_table(folder)
    rule = "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
    heads = {width: table.to_text(width, details=False).partition(rule)[0] for width in (80, 140)}
    for word in ("mean %", "worst", "alone [95 %]", "helped", "hurt", "MB"):
        assert word in heads[80]
        assert word in heads[140]
    for word in ("gradients", "down"):
        assert word not in heads[80]
        assert word in heads[140]


def test_json_is_strict_and_whole(folder):
    data = json.loads(json.dumps(comparison_table(folder).as_dict(), allow_nan=False))
    wild, personal = data["methods"][3], data["methods"][2]
    assert wild["mean"] is None
    assert wild["diverged"] == {"round": 7, "client": "hospital-03", "reason": ""}
    assert personal["gradients_both"] == 50 * 20 * 640  # rounds, clients, each
    assert personal["shared_mean"] is None
    assert data["answer"]["best"] == "personal heads"
    assert any("fedavg-wild" in sentence for sentence in data["missing"])


def test_infinite_scores_do_not_break_json(folder, edit_summary):
    edit_summary(folder, _set(fedavg=(float("inf"), float("inf"))))
    assert comparison_table(folder).as_dict()["methods"][1]["mean"] is None


def test_the_answer_names_method_clients_and_price(folder):
    table = comparison_table(folder)
    run = read(folder)
    clients = client_table(run, "personal heads")
    sentence = table.answer.sentence
    assert sentence.startswith("personal heads is best on average (accuracy ")
    assert "against training alone)" in sentence
    helped = clients.counted("helped")
    assert 0 < helped < 19
    assert (
        f"of 19 clients with personal heads {helped} are clearly helped and none clearly hurt against alone" in sentence
    )
    assert (table.answer.helped, table.answer.hurt, table.answer.compared) == (helped, 0, 19)
    # 31 kB each way to 20 clients for 50 rounds, and once more to deliver: 31e3 * 20 * 101 = 62.62 MB; / 20 = 3.1
    assert (
        "personal heads communicates 62.6 MB over 50 rounds and the delivery of the models, 3.1 MB per client."
        in sentence
    )
    assert table.answer.traffic_bytes == 31_000 * 20 * 101


ANSWERS = {
    "alone wins": (
        {"local": (0.9, 0.8), "fedavg": (0.8, 0.7), "personal_heads": (0.7, 0.85)},
        (
            "Training alone is best on average (accuracy 90.0 %), ahead of fedavg (80.0 %)",
            "for the worst tenth of clients personal heads is best (85.0 %)",
            "of 19 clients with fedavg ",
        ),
    ),
    "alone and another by rounding": (
        {"local": (0.9, 0.8), "fedavg": (0.9 - 1e-8, 0.8 + 1e-8), "personal_heads": (0.7, 0.7)},
        (
            "Training alone is best on average (accuracy 90.0 %), level with fedavg (90.0 %)",
            "it is also best for the worst tenth of clients, level with fedavg (80.0 %)",
        ),
    ),
    "two level on average": (
        {"local": (0.7, 0.6), "fedavg": (0.9, 0.7), "personal_heads": (0.9, 0.8)},
        (
            "fedavg is best on average, level with personal heads (accuracy 90.0 %",
            "for the worst tenth of clients personal heads is best (80.0 %)",
        ),
    ),
    "worst is alone": (
        {"local": (0.7, 0.8), "fedavg": (0.8, 0.7), "personal_heads": (0.75, 0.7)},
        ("fedavg is best on average", "for the worst tenth of clients training alone is best (80.0 %)"),
    ),
    "worst is alone and another": (
        {"local": (0.7, 0.889), "fedavg": (0.8, 0.7), "personal_heads": (0.75, 0.889)},
        ("for the worst tenth of clients training alone is best, level with personal heads (88.9 %)",),
    ),
    "worst is the same and another": (
        {"local": (0.7, 0.6), "fedavg": (0.8, 0.889), "personal_heads": (0.75, 0.889)},
        ("it is also best for the worst tenth of clients, level with personal heads (88.9 %)",),
    ),
    "worst is the same with all": (
        {"local": (0.7, 0.5), "fedavg": (0.8, 0.5), "personal_heads": (0.75, 0.5)},
        ("the worst tenth of clients fares the same with every method (50.0 %)",),
    ),
    "worst is nothing": (
        {"local": (0.7, 0.0), "fedavg": (0.8, 0.0), "personal_heads": (0.75, 0.0)},
        ("with every method the worst tenth of clients gets no test row right;",),
    ),
    "same wins both": (
        {"local": (0.7, 0.6), "fedavg": (0.8, 0.7), "personal_heads": (0.75, 0.6)},
        ("it is also best for the worst tenth of clients (70.0 %)",),
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_answers(folder, edit_summary, case):
    means, expected = ANSWERS[case]
    edit_summary(folder, _set(**means))
    sentence = comparison_table(folder).answer.sentence
    for part in expected:
        assert part in sentence


def _announce(method, tied=()):
    """Changes a summary: validation rows choose this method, whatever test rows say."""
    return lambda summary: summary.update(announced=Announced(method, "log_loss", 0.5, tuple(tied)))


def test_the_answer_is_the_method_of_validation_rows_not_the_best_on_test_rows(folder, edit_summary):
    edit_summary(folder, _announce("fedavg", tied=["local"]))
    table = comparison_table(folder)
    assert (table.answer.best, table.answer.tied) == ("fedavg", ("local",))
    assert table.answer.best_mean < table.rows[2]["mean"]  # personal heads is better on test rows
    assert table.answer.sentence.startswith(
        "fedavg does best on validation rows, within noise of training alone, which sends nothing; "
    )
    lines = table.to_text(details=False).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("\N{RIGHTWARDS ARROW}")] == ["fedavg"]
    assert "\N{RIGHTWARDS ARROW} chosen on validation rows;" in table.legend()
    edit_summary(folder, lambda summary: summary.update(choose_by="log_loss"))
    assert "\N{RIGHTWARDS ARROW} chosen on validation rows by log loss;" in comparison_table(folder).legend()


def test_the_cheapest_of_the_methods_that_are_level_is_named(folder, edit_summary):
    edit_summary(folder, _announce("fedavg", tied=["personal heads"]))
    sentence = comparison_table(folder).answer.sentence
    assert "within noise of personal heads, which sends 62.6 MB" in sentence
    edit_summary(folder, _announce("personal heads", tied=["fedavg"]))
    assert "which sends" not in comparison_table(folder).answer.sentence  # it is the cheapest itself


def test_nothing_is_clearly_ahead_of_what_was_cut_short(folder, edit_summary):
    edit_summary(folder, _announce("personal heads"))
    edit_summary(folder, lambda summary: _method(summary, "fedavg").update(converged=False))
    assert "ahead of the others as far as they were trained" in comparison_table(folder).answer.sentence


def _named(summary, validation, test):
    """Training alone is announced; the others have these means of accuracy."""
    _announce("local")(summary)
    for name in ("fedavg", "personal heads"):
        _method(summary, name).update(choosing_mean=validation[name])
        _method(summary, name)["score"].update(mean=test[name])


def test_test_rows_do_not_choose_the_method_that_is_held_against_training_alone(folder, edit_summary):
    validation = {"fedavg": 0.7, "personal heads": 0.6}
    for fedavg, heads in ((0.9, 0.1), (0.1, 0.9)):
        edit_summary(
            folder,
            lambda summary, test={"fedavg": fedavg, "personal heads": heads}: _named(summary, validation, test),
        )
        assert comparison_table(folder).answer.personalized == "fedavg"


def test_without_a_tie_the_announced_method_is_clearly_ahead(folder, edit_summary):
    edit_summary(folder, _announce("personal heads"))
    assert "validation rows, clearly ahead of the others; " in comparison_table(folder).answer.sentence


def test_the_answer_has_both_gains_and_says_which_is_not_clear(folder, edit_summary):
    def change(summary):
        _announce("personal heads")(summary)
        _method(summary, "personal heads").update(
            gain=Gain(0.06, 0.02, 0.1, 19, "local"), gain_over_one=Gain(0.01, -0.02, 0.04, 19, "fedavg")
        )

    edit_summary(folder, change)
    table = comparison_table(folder)
    gains = "+6.0 [+2.0, +10.0] against training alone and +1.0 [\N{MINUS SIGN}2.0, +4.0] against one model for all"
    assert f"{gains} (not clear);" in table.answer.sentence
    assert [row.one for row in table.rows] == [False, True, False, False]
    assert [row["over_one"] for row in table.rows] == [None, None, 0.01, None]


def _clients(folder, **columns):
    """Rewrite columns of personal heads, and of the test rows of all: by the client's place, from its old numbers."""
    rows = pq.read_table(folder / "clients.parquet").to_pylist()
    place = {name: number for number, name in enumerate(dict.fromkeys(row["client"] for row in rows))}
    for row in rows:
        for column, change in columns.items():
            if column == "test_rows" or row["method"] == "personal heads":
                row[column] = change(place[row["client"]], row[column])
    pq.write_table(pa.Table.from_pylist(rows), folder / "clients.parquet")


def test_a_client_of_one_row_that_decides_the_mean_gain_is_named(folder, edit_summary):
    def change(summary):
        _announce("personal heads")(summary)
        _method(summary, "personal heads").update(gain=Gain(0.05, -0.05, 0.15, 19, "local"))

    edit_summary(folder, change)
    _clients(folder, gain=lambda place, old: None if place == 0 else 1.0 if place == 7 else 0.0)
    assert "decides the mean gain" not in comparison_table(folder).answer.sentence  # it has as many rows as others
    _clients(folder, test_rows=lambda place, old: 1 if place == 7 else 40)
    said = "Client hospital-08 has 1 test row and decides the mean gain over training alone: without it 0.0."
    assert said in comparison_table(folder).answer.sentence
    _clients(folder, gain=lambda place, old: None if place == 0 else 0.05 + 0.01 * (-1) ** place)
    assert "decides the mean gain" not in comparison_table(folder).answer.sentence  # it is like the others


def test_a_method_that_never_left_its_start_is_named(folder, edit_summary):
    def change(summary):
        _announce("personal heads")(summary)
        nothing = {"rounds": 0, "download_bytes": 0, "upload_bytes": 0, "delivery_bytes": 0}
        _method(summary, "personal heads").update(nothing, tuned="step size 0.1")

    edit_summary(folder, change)
    sentence = comparison_table(folder).answer.sentence
    assert "Validation rows prefer the start of personal heads to every later round: nothing was shared." in sentence
    assert "personal heads sends nothing." in sentence


def test_a_method_that_had_not_converged_is_marked_and_named(folder, edit_summary):
    edit_summary(folder, lambda summary: _method(summary, "fedavg").update(converged=False))
    table = comparison_table(folder)
    assert "fedavg ~" in table.to_text(details=False)
    assert "~ had not converged" in table.legend()
    assert "fedavg had not converged when training stopped" in table.answer.sentence
    edit_summary(folder, lambda summary: _method(summary, "fedavg").update(converged=True))
    table = comparison_table(folder)
    assert "~" not in table.to_text() + table.answer.sentence
    assert "had not converged when" not in table.answer.sentence


def test_the_price_is_one_number(folder):
    short = comparison_table(folder).to_text(details=False)
    line = next(line for line in short.splitlines() if line.startswith("personal heads"))
    assert line.split()[-1].rstrip("*") == "62.6"  # up, down and the delivery, see above


def test_details_that_find_no_room_stand_in_a_second_table(folder, edit_summary):
    """Nothing is cut off: before, the last digits of the last column were lost without a sign."""

    def widen(summary):
        for entry in summary["methods"]:
            entry["gain_over_one"] = Gain(0.1, -0.123, 0.123, 19, "fedavg")
        _method(summary, "fedavg").update(method="a_method_with_a_name_of_some_length")

    whole = comparison_table(folder).to_text(120).partition("* best of its column")[0]
    edit_summary(folder, widen)
    text = comparison_table(folder).to_text(120)
    tables = text.partition("* best of its column")[0]
    lines = [line for line in tables.splitlines() if line.startswith("personal heads")]
    assert (whole.count("personal heads"), len(lines)) == (1, 2)
    assert lines[1].rstrip("*").endswith("0/0/640k")
    assert max(map(len, text.splitlines())) <= 120


def test_more_methods_than_can_be_named_are_counted(make_run, methods, edit_summary):
    kind = type(methods["fedavg"])
    folder = make_run(methods=(methods["local"], *(kind(f"m{place}", "local_sgd") for place in range(5))))
    edit_summary(folder, _set(local=(0.7, 0.6), **{f"m{place}": (0.8, 0.7) for place in range(5)}))
    assert "m0 is best on average, level with 4 others (" in comparison_table(folder).answer.sentence


@pytest.mark.parametrize(("low", "unclear"), [(-0.01, True), (0.01, False)])
def test_an_interval_with_zero_inside_is_no_clear_difference(folder, edit_summary, low, unclear):
    gain = Gain(0.06, low, 0.13, 19, "local")
    edit_summary(folder, lambda summary: _method(summary, "personal heads").update(gain=gain))
    assert ("not a clear difference" in comparison_table(folder).answer.sentence) is unclear


def test_without_training_alone_nothing_is_claimed_about_it(folder_without_alone):
    table = comparison_table(folder_without_alone)
    assert "whether clients would do better alone is not known" in table.answer.sentence
    assert (table.answer.helped, table.answer.hurt, table.answer.compared) == (None, None, None)
    assert (table.rows[0]["gain"], table.rows[0]["helped"]) == (None, None)
    assert "[95 %]" in table.to_text()


def test_without_rows_a_mean_gain_is_known_and_no_verdict(folder, edit_summary):
    """As a deployment leaves it: the scores of all sites, and not a row."""
    clients = pq.read_table(folder / "clients.parquet")
    for name in ("gain_low", "gain_high", "verdict"):
        place = clients.column_names.index(name)
        clients = clients.set_column(place, name, pa.nulls(len(clients), clients[name].type))
    pq.write_table(clients, folder / "clients.parquet")
    unknown = dict.fromkeys(("helped", "hurt", "same", "unclear"))
    edit_summary(folder, lambda summary: [entry.update(unknown) for entry in summary["methods"]])
    table = comparison_table(folder)
    assert "which clients are clearly helped or hurt is not known, as that needs their rows" in table.answer.sentence
    assert "against training alone" in table.answer.sentence
    assert (table.answer.helped, table.answer.compared) == (None, None)
    page = build_report(folder).read_text(encoding="utf-8")
    figure = page.partition('id="figure-gain-by-client"')[2].partition("</figure>")[0]
    assert "Intervals and verdicts of single clients need their rows, which are not here." in figure
    assert "95 % interval" not in figure
    assert "expected gain in" not in figure


def test_no_method_with_a_score(make_run, methods):
    table = comparison_table(make_run(methods=(methods["fedavg-wild"],)))
    assert table.answer.sentence.startswith("Every method of this run diverged, so there is no answer")
    assert "diverged" in table.to_text()


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0"), (999, "999"), (999_600, "1.0 M"), (1_234_567, "1.2 M"), (345_600, "346 k"), (None, "\N{EN DASH}")],
)
def test_counts(number, expected):
    assert count(number) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0"), (10, "<0.001"), (12_345, "0.012"), (1_234_567, "1.23"), (123_456_789, "123"), (5e12, "5,000,000")],
)
def test_megabytes(number, expected):
    assert megabytes(number) == expected


def test_signs():
    words = score_words("accuracy")
    assert [words.signed(value) for value in (0.0123, -0.0123, -0.0001, None)] == [
        "+1.2",
        "\N{MINUS SIGN}1.2",
        "0.0",  # never "-0.0"
        "\N{EN DASH}",
    ]
    assert size(512) == "512 bytes"
    assert size(62_620_000) == "62.6 MB"


def test_the_price_per_client_leaves_out_clients_that_never_trained(folder, hold_out):
    before = comparison_table(folder).answer.sentence
    hold_out(folder, 10)
    after = comparison_table(folder).answer.sentence
    each = [sentence.rsplit(", ", 1)[1] for sentence in (before, after)]
    # the same bytes over half as many clients: 4.0 MB each instead of 2.0, whatever the run's numbers are
    amounts = [float(text.split()[0]) for text in each]
    assert amounts[1] == pytest.approx(2 * amounts[0], rel=0.06)


def test_the_column_of_a_sweep_is_in_the_score_that_chooses(folder, edit_summary):
    edit_summary(folder, _sweep)
    edit_summary(folder, lambda summary: summary.update(choose_by="log_loss"))
    text = comparison_table(folder).to_text()
    assert "\N{CHECK MARK} 0.800" in text
    assert "\N{CHECK MARK} 80.0" not in text


@pytest.mark.parametrize(
    ("second", "words"), [(0.5004, "by little (0.08 % of the log loss)"), (0.506, "clearly ahead of the others")]
)
def test_a_small_difference_beyond_noise_is_said_to_be_small(folder, edit_summary, second, words):
    def change(summary):
        _announce("personal heads")(summary)
        summary["choose_by"], summary["higher_is_better"]["log_loss"] = "log_loss", False
        for line in summary["methods"]:
            line["choosing_mean"] = 0.5 if line["method"] == "personal heads" else second

    edit_summary(folder, change)
    assert words in comparison_table(folder).answer.sentence


def test_many_methods_within_noise_are_counted(folder, edit_summary):
    def change(summary):
        line = dict(_method(summary, "fedavg"))
        summary["methods"] += [{**line, "method": f"other {number}"} for number in range(8)]
        _announce("personal heads", tied=[f"other {number}" for number in range(8)])(summary)

    edit_summary(folder, change)
    assert "within noise of 8 others" in comparison_table(folder).answer.sentence


def test_evil_names_are_shown_in_one_line(make_run, edit_summary):
    """No file is trusted: a label cannot move the cursor, turn the direction of writing, or begin a line."""
    evil = "x\x1b[2J\x9b\u202e\nError: all is lost"
    folder = make_run(names=lambda m: f"{evil}{m}")
    edit_summary(
        folder, lambda summary: _method(summary, "fedavg").update(method=evil, diverged=Divergence(3, evil, evil))
    )
    table = comparison_table(folder)
    text = table.to_text()
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert not any(line.startswith("Error") for line in text.splitlines())
    assert "\\x1b[2J\\x9b\\u202e\\nError" in "".join(text.split())
    assert evil in {row["method"] for row in table.as_dict()["methods"]}  # a program gets the name itself

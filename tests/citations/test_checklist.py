"""What a citation audit must do, row by row, each with the tests that prove it, and worked cases with their figures.

A row: its id in the checklist, what is right in a few words, and tests as `file below tests::function`. A test that is
renamed or removed is found here. `LEFT_OUT` says what is not built and why.
"""

from __future__ import annotations

from itertools import chain

from tests.test_faults import TESTS, Proof, missing

A, AT, CO, EV = (f"citations/test_{n}.py::test_" for n in ("audit", "attribution", "composer", "evidence"))
FP, GO, IN, ME, PA = (
    f"citations/test_{n}.py::test_" for n in ("from_predictions", "gold", "invariants", "metrics", "packing")
)
PO, RD, RE, ST, TF = (
    f"citations/test_{n}.py::test_" for n in ("posteriors", "redaction", "report", "stages", "trace_file")
)
CN, FR, NL = (f"citations/judges/test_{n}.py::test_" for n in ("constraints", "frozen", "nli"))
RU, PR, HS, SC = (f"experiments/test_{n}.py::test_" for n in ("audit", "practice", "hot_swap", "audit_script"))
DU = "experiments/test_hot_swap_dumps.py::test_"
LM, DF, AN, RT = (
    "losses/test_marginals.py::test_", "decoding/test_fixtures.py::test_", "evaluation/test_answers.py::test_",
    "evaluation/test_retrieval.py::test_",
)  # fmt: skip

FUNCTIONS: dict[str, Proof] = {
    "A1.1": ("both likelihoods, in log space", f"{LM}hand_values", f"{LM}hand_value_per_token",
             f"{LM}long_answers_do_not_underflow"),
    "A1.2": ("priors that do not sum to one are found", f"{IN}i5_priors_of_the_passages_kept_sum_to_one",
             f"{RU}d40_bad_lines", f"{LM}shapes_that_disagree_are_refused"),
    "A1.3": ("an honest float32 softmax passes", f"{IN}i5_priors_of_the_passages_kept_sum_to_one"),
    "A1.4": ("the prior is over the passages kept", f"{PA}per_doc_keeps_the_first_n_docs_with_priors_over_just_those"),
    "A2.1": ("whole chunks, and a later shorter one", f"{PA}d05_whole_chunks_under_the_budget",
             f"{PA}d05_a_later_shorter_chunk_still_fits"),
    "A2.2": ("parts of a budget are whole numbers", f"{PA}parts_that_are_no_counts_are_refused",
             f"{PA}a_cost_that_is_no_count_is_refused", f"{PA}a_budget_of_zero_is_legal_and_drops_everything"),
    "A2.3": ("the cost is of the serialised chunk", f"{PA}the_cost_is_that_of_the_serialised_chunk"),
    "A2.4": ("a duplicate has its row and reason", f"{IN}d06_a_duplicate_is_dropped_for_being_one",
             f"{PA}every_candidate_has_one_fate_and_the_sum_is_kept"),
    "A3.1": ("supporting and unknown are told apart", f"{A}d07_version_change", f"{A}d10_duplicates"),
    "A3.2": ("a key has three parts", f"{EV}statuses"),
    "A3.3": ("the four traps of the printed code", f"{EV}statuses", f"{TF}a_claim_id_stands_once_in_a_file",
             f"{A}unlabelled_is_not_unknown", f"{A}d08_good_and_bad_citations"),
    "A4.1": ("strict status of a claim's citations", f"{A}d08_good_and_bad_citations", f"{A}uncited_and_exempt"),
    "A4.2": ("citations belong to claims", f"{TF}a_trace_comes_back_as_it_was", f"{RE}a_citation_opens_the_exact_span"),
    "A4.3": ("permission comes before the input",
             f"{IN}a_passage_that_the_reader_may_not_see_is_dropped_before_packing"),
}  # fmt: skip

RULES: dict[str, Proof] = {
    "R1": ("identity is source, version and chunk", f"{A}r1_keys_are_whole_records", f"{EV}statuses"),
    "R2": ("cited within packed within retrieved", f"{A}d13_chain", f"{IN}a_sound_trace_has_no_findings"),
    "R3": ("outside only with a permitted search", f"{A}d13_chain"),
    "R4": ("found and not packed is no retrieval fault", f"{ST}each_stage"),
    "R5": ("one sufficient group must be whole", f"{A}d12_groups", f"{ST}the_furthest_group_counts"),
    "R6": ("a conflict is shown beside support", f"{A}d37_conflict"),
    "R7": ("numbers are made after packing", f"{IN}d34_numbers_of_the_list_before_packing",
           f"{PA}d34_numbers_are_made_after_packing", f"{EV}display_form_is_no_identity"),
    "R8": ("a high prior is no support", f"{PO}the_gain_is_not_the_largest_posterior"),
    "R9": ("right and grounded are two figures", f"{A}d22_number_against_source", f"{RU}e9_right_without_evidence"),
    "R10": ("labels are frozen before the run", f"{IN}d39_independence", f"{A}r10_labels_come_before_the_judge"),
    "R11": ("scoring without answers is fixed before", f"{ME}abstention_table",
            f"{RU}reason_codes_are_scored_where_nothing_is_answered"),
    "R12": ("a corrected source is checked again", f"{EV}what_another_version_replaced_is_stale_from_then_on",
            f"{A}the_digest_of_the_run_counts_too"),
    "R13": ("coverage is claims with full support", f"{RU}d09_nothing_to_score_is_null", f"{RU}gates"),
    "R14": ("unlabelled is neither support nor refusal", f"{A}unlabelled_is_not_unknown", f"{A}claim_statuses"),
    "R15": ("every stage keeps its own record", f"{TF}a_trace_comes_back_as_it_was",
            f"{PR}the_three_stages_are_written_apart_and_agree_with_the_traces"),
    "R17": ("a card leads to its exact lines", f"{CO}r17_a_line_leads_to_the_whole_it_belongs_to",
            f"{EV}derived_text_leads_to_its_parent"),
    "R18": ("offsets are code points, half open", f"{EV}offsets_are_code_points_of_the_exact_text",
            f"{A}where_a_citation_points"),
    "R19": ("the request's date says what is current", f"{CO}r19_the_request_says_what_is_current",
            f"{EV}currency_is_decided_by_the_date_of_the_request"),
    "R20": ("parallel versions are looked at too",
            f"{CO}r20_a_parallel_version_that_was_not_found_is_read_all_the_same"),
    "R21": ("a filter does not change the scores", f"{CO}r21_scores_do_not_depend_on_what_applies"),
    "R22": ("the budget comes before the generator", f"{CO}f25_the_budget_is_checked_before_anything_is_composed",
            f"{IN}i6_the_budget_adds_up"),
    "R23": ("a paraphrase is left open, not refused", f"{CO}d22_number_and_citation_are_checked_apart",
            "citations/test_support.py::test_not_found_is_not_judged"),
    "R24": ("amount, unit and date stay together", f"{CN}d27", f"{CN}what_is_exact_may_come_from_several_passages"),
    "R25": ("abstained, refused and failed are three", f"{RU}reason_codes_are_scored_where_nothing_is_answered"),
    "R26": ("an index is swapped, no weight changes", f"{HS}weights_that_change_meanwhile_are_refused",
            "training/test_loop.py::test_the_useful_passage_gains_while_index_and_passage_vectors_stand_still"),
    "R29": ("display shows where, and leaks nothing", f"{RE}a_citation_opens_the_exact_span",
            f"{RU}d25_no_file_says_what_a_reader_may_not_see"),
    "R30": ("retrieved text is data", f"{RE}the_page_is_static_and_everything_is_escaped"),
}  # fmt: skip

RECORDS: dict[str, Proof] = {
    "DS1": ("the least metadata of a citation", f"{EV}fields_of_a_corpus_line", f"{RE}a_citation_opens_the_exact_span"),
    "DS2": ("version, span, acl, lineage, checksum", f"{EV}fields_of_a_corpus_line", f"{EV}d23_hashes"),
    "DS3": ("an abstention, letter by letter",
            f"{CO}d20_only_the_expired_version_is_an_abstention_letter_by_letter"),
    "DS4": ("an answer with its lines and address", f"{CO}ds4_the_exact_lines_with_their_address"),
    "DS5": ("the offsets and digest of the sample", f"{EV}offsets_are_code_points_of_the_exact_text"),
    "DS6": ("what a parent document records", f"{EV}fields_of_a_corpus_line"),
    "DS7": ("what each stage gives can be checked", f"{ST}each_stage", f"{PR}every_stage_accounts_for_every_passage"),
    "DS8": ("a trace with digests and versions", f"{A}the_digest_of_the_run_counts_too",
            f"{TF}a_trace_comes_back_as_it_was"),
    "DS9": ("groups are sets of keys", f"{GO}a_line", f"{GO}groups_of_the_question"),
    "DS10": ("the frozen table of support", f"{GO}a_line"),
    "DS11": ("a bad case names layer and versions", f"{RU}the_folder_of_an_audit"),
}  # fmt: skip

FAILURES: dict[str, Proof] = {
    "F1": ("not retrieved", f"{ST}each_stage"),
    "F2": ("retrieved, and no room", f"{ST}d05_budget", f"{CO}f2_two_are_found_and_one_fits"),
    "F3": ("packed and misread", f"{A}f3_packed_and_not_what_it_says"),
    "F4": ("cited, of another version", f"{A}d07_version_change"),
    "F5": ("there, and not in support", f"{A}f3_packed_and_not_what_it_says"),
    "F6": ("a part of a group", f"{A}d12_groups"),
    "F7": ("said from memory", f"{RU}d32_the_same_number_without_its_source"),
    "F8": ("a source without a passage", f"{A}f8_granularity"),
    "F9": ("an outdated version", f"{RU}d33_an_index_of_another_date"),
    "F10": ("derived text in place of the original", f"{EV}derived_text_leads_to_its_parent",
            f"{EV}derived_text_without_an_original"),
    "F11": ("a document that was withdrawn", f"{EV}f11_withdrawn_text_does_not_open"),
    "F12": ("not for this reader", f"{EV}acl", f"{RD}d25_nothing_of_it_is_written",
            f"{CO}f12_what_the_reader_may_not_see_is_not_quoted"),
    "F13": ("cut off at a boundary", f"{ST}f13_what_was_cut_off_was_not_seen",
            f"{CO}r17_a_line_leads_to_the_whole_it_belongs_to"),
    "F14": ("drift over time", f"{RU}d38_one_version_changed_is_one_row_changed"),
    "F15": ("a digest that does not fit", f"{EV}d23_hashes", f"{RU}a_wrong_digest_in_the_corpus_is_found"),
    "F16": ("right number, wrong citation", f"{A}d22_number_against_source"),
    "F17": ("wrong number, right citation", f"{A}d22_number_against_source"),
    "F18": ("two in force that disagree", f"{CO}d20_versions_in_force_at_once_that_disagree"),
    "F19": ("nothing said is no success", f"{RU}d09_nothing_to_score_is_null",
            f"{RE}a_figure_without_a_value_is_not_a_zero"),
    "F20": ("stuffing does not pay", f"{A}d10_duplicates", f"{ME}alce_counts_what_does_not_exist"),
    "F21": ("numbers of an old list", f"{IN}d34_numbers_of_the_list_before_packing"),
    "F22": ("labels by the system itself", f"{IN}d39_independence"),
    "F23": ("two embeddings in one input", f"{IN}f23_mixed_versions_of_an_embedding"),
    "F24": ("a task it does not do", f"{CO}f24_what_it_does_not_do"),
    "F25": ("no room for any source", f"{CO}f25_the_budget_is_checked_before_anything_is_composed"),
    "F26": ("a prior that does harm", f"{PO}the_gain_is_not_the_largest_posterior"),
    "F28": ("an instruction inside a passage", f"{RE}the_page_is_static_and_everything_is_escaped"),
    "F29": ("versions of parser, chunker and index", f"{IN}f23_mixed_versions_of_an_embedding"),
    "F30": ("a card without its parent", f"{EV}derived_text_leads_to_its_parent"),
}  # fmt: skip

METRICS: dict[str, Proof] = {
    "A5 coverage": ("none of nothing", f"{RU}d09_nothing_to_score_is_null"),
    "A5 precision": ("of citations", f"{RU}d14_figure_3_of_alce", f"{ME}alce"),
    "A5 support": ("of claims, judged or not", f"{RU}d29_what_nobody_labelled_is_counted_both_ways"),
    "A5 granularity": ("document, section, span", f"{A}f8_granularity"),
    "A5 stale": ("citations out of date", f"{RU}d33_an_index_of_another_date",
                 f"{DU}a_citation_is_stale_where_the_later_dump_has_other_words"),
    "A5 unresolvable": ("citations that lead nowhere", f"{RU}d38_one_version_changed_is_one_row_changed"),
    "A5 retrieval": ("recall, precision, nDCG, MRR", f"{RT}hand_values", f"{RT}ndcg_by_hand"),
    "A5 correctness": ("of answers", f"{AN}the_best_accepted_answer_counts"),
    "A5 abstention": ("right to be silent", f"{ME}abstention_table"),
    "A5 unauthorised": ("forbidden citations are counted", f"{RU}d25_no_file_says_what_a_reader_may_not_see"),
    "A9.1": ("any and all, both printed", f"{RU}d07_d08_both_readings_stand_in_the_summary"),
    "A9.2": ("in corpus, in input, labelled", f"{A}d13_chain", f"{A}unlabelled_is_not_unknown"),
    "A9.3": ("what the generator saw", f"{A}where_a_citation_points", f"{ST}f13_what_was_cut_off_was_not_seen"),
    "A9.4": ("a budget has its unit", f"{PA}e4_code_points_left_of_1400_with_200_reserved"),
    "A9.5": ("per claim and per citation", f"{RU}d14_figure_3_of_alce"),
}  # fmt: skip

EXPERIMENTS: dict[str, Proof] = {
    "E1": ("twelve questions, three artefacts", f"{PR}e1_three_of_each_category", f"{RU}d38_practice_set"),
    "E2": ("evidence swapped under a question", f"{RU}d32_the_same_number_without_its_source",
           f"{CO}e2_the_same_topic_without_the_number_is_no_evidence"),
    "E3": ("the table of seven failures", f"{PR}e3_proposed_answers_stop_at_the_gate_that_they_must"),
    "E4": ("room in code points", f"{PA}e4_code_points_left_of_1400_with_200_reserved",
           f"{IN}e4_context_in_code_points"),
    "E5": ("the example of RAG-Sequence", f"{PO}e5_rag_sequence_worked_example"),
    "E6": ("the example of RAG-Token", f"{PO}e6_rag_token_worked_example"),
    "E7": ("thorough .675, fast .645", f"{DF}dante"),
    "E8": ("the heat map of figure 2", f"{RE}e8_heat_map",
           f"{PO}e8_the_posterior_is_flat_after_the_first_token_of_a_title"),
    "E9": ("right without evidence", f"{RU}e9_right_without_evidence"),
    "E10": ("gold articles and labels of FEVER", f"{ME}d19_the_pair_of_the_scorer"),
    "E11": ("an index of another date", f"{RU}d33_an_index_of_another_date",
            f"{HS}the_edition_under_mismatched_is_that_of_the_questions"),
}  # fmt: skip

CASES: dict[str, Proof] = {
    "D01": (".118, .2356, [.62, .38]", f"{LM}hand_values_of_the_losses", f"{LM}hand_value_per_token",
            f"{DF}token_beam_mixes_before_every_token"),
    "D02": ("one token: .62 and .870968 for both", f"{LM}hand_values", f"{AT}d02_one_token",
            "test_model_targets.py::test_a_one_token_answer_without_bos_is_scored"),
    "D03": ("posteriors, gains, who is cited", f"{PO}d03_attribution_of_d01", f"{PO}d03_emission", f"{AT}d01_sequence",
            f"{AT}d01_token"),
    "D04": (".675 and .645, and the flip .35/.29 against .29/.20", f"{DF}dante", f"{DF}a_missing_pair_flips_the_order",
            f"{AT}d04_thorough_and_a_passage_that_was_never_scored"),
    "D05": ("A is packed, B skipped, 2 remain", f"{PA}d05_whole_chunks_under_the_budget",
            f"{PA}d05_a_later_shorter_chunk_still_fits", f"{ST}d05_budget"),
    "D06": ("a duplicate and a skipped chunk, 1 remains",
            f"{PA}d06_a_copy_is_dropped_as_a_duplicate_also_where_the_first_did_not_fit",
            f"{IN}d06_a_duplicate_is_dropped_for_being_one"),
    "D07": ("unknown version, coverage 0", f"{A}d07_version_change",
            f"{RU}d07_d08_both_readings_stand_in_the_summary"),
    "D08": ("coverage 1, strict invalid", f"{A}d08_good_and_bad_citations",
            f"{RU}d07_d08_both_readings_stand_in_the_summary"),
    "D09": ("null of 0; 1.0 of 1 with 3 null", f"{RU}d09_nothing_to_score_is_null", f"{FR}d09_nothing_has_no_rate"),
    "D10": ("duplicates 2/3, precision 1/1", f"{A}d10_duplicates", f"{RU}d10_a_citation_said_three_times"),
    "D12": ("half a group, a group, precision 2/3", f"{A}d12_groups",
            f"{A}d12_a_table_of_single_passages_cannot_say_so"),
    "D13": ("not packed, not retrieved, unknown source", f"{A}d13_chain"),
    "D14": ("recall 2/3, precision 4/6, Liu 5/6", f"{RU}d14_figure_3_of_alce",
            f"{A}d14_partial_support_in_figure_3_of_alce"),
    "D16": ("recall 1/2, precision 1/3, one invalid", f"{RU}d16_a_number_out_of_range",
            f"{A}d16_numbers_out_of_range_stay_in_the_denominator"),
    "D17": (".5, .375, 1/3, .25; .5, .5", f"{ME}d17_trec"),
    "D18": (".5, 1, .4, .666667; 1 and 0 of pages and chunks", f"{ME}d18_kilt",
            f"{RU}d18_the_right_page_and_the_wrong_chunk"),
    "D19": (".5, 1, .833333, .5, .625", f"{ME}d19_the_pair_of_the_scorer", f"{ME}d19_edges"),
    "D20": ("the abstention, the conflict, 609 and 852",
            f"{CO}d20_only_the_expired_version_is_an_abstention_letter_by_letter",
            f"{CO}d20_versions_in_force_at_once_that_disagree", f"{PA}e4_code_points_left_of_1400_with_200_reserved",
            f"{CO}f25_the_budget_is_checked_before_anything_is_composed"),
    "D22": ("exists, value, support: three checks", f"{A}d22_number_against_source",
            f"{CO}d22_number_and_citation_are_checked_apart"),
    "D23": ("mismatch, missing, unchanged", f"{A}d23_a_text_that_is_not_the_recorded_one_is_not_judged",
            f"{EV}d23_hashes"),
    "D25": ("forbidden 1, and in no file", f"{RD}d25_nothing_of_it_is_written",
            f"{RU}d25_no_file_says_what_a_reader_may_not_see"),
    "D26": ("found after 2,000 words, no window cut", f"{NL}d26_the_support_after_two_thousand_words_is_found",
            f"{NL}d26_outputs_without_a_meaning_are_refused",
            f"{NL}a_real_checkpoint_gives_the_same_whatever_the_order_of_its_labels"),
    "D27": ("numbers, units, dates, names, negation", f"{CN}d27"),
    "D29": ("6/7 between .6 and .9, 3 open", f"{RU}d29_what_nobody_labelled_is_counted_both_ways",
            f"{FR}d29_bounds_of_a_rate_with_open_claims"),
    "D31": ("one passage: trivial, no gain", f"{AT}d31_one_passage_is_trivial", f"{PO}d31_one_passage",
            f"{FP}d31_the_only_passage_is_no_citation"),
    "D32": ("suspects 1 of 3", f"{RU}d32_the_same_number_without_its_source"),
    "D33": ("stale from the other dump, a diagonal", f"{RU}d33_an_index_of_another_date",
            f"{EV}d33_a_dump_is_stale_where_a_later_dump_says_something_else",
            f"{HS}a_model_that_reads_answers_from_the_index_it_has"),
    "D34": ("[1] is b by the last map", f"{PA}d34_numbers_are_made_after_packing",
            f"{IN}d34_numbers_of_the_list_before_packing", f"{IN}d34_numbers_by_how_often_a_file_is_cited"),
    "D37": ("supported with a conflict", f"{A}d37_conflict"),
    "D38": ("one packing miss, one row moves", f"{RU}d38_practice_set",
            f"{RU}d38_one_version_changed_is_one_row_changed",
            f"{PR}gold_was_frozen_before_and_names_what_the_corpus_holds",
            f"{PR}the_three_stages_are_written_apart_and_agree_with_the_traces"),
    "D39": ("labels by the system fail strictly", f"{IN}d39_independence", f"{IN}d39_the_judge_is_not_the_system",
            f"{RU}d39_strict", f"{SC}exit_status_1_where_a_gate_failed"),
    "D40": ("five bad lines, named", f"{RU}d40_bad_lines", f"{TF}d40_what_is_refused_is_named",
            f"{SC}exit_status_2_on_bad_input"),
}  # fmt: skip

LEFT_OUT = {
    "R16": "words, not code: the README says which likelihood a figure is of",
    "R27": "advice on repair; the digest that finds the fault is R12",
    "R28": "a policy by type of claim belongs to whoever deploys the system",
    "R31": "memory of users is another store",
    "F27": "bias of a retriever by kind of question is evaluated per kind, not audited",
    "A5 optional": "token waste, human pass rate, latency, clicks: nothing here measures them",
    "A9.6": "partial credit, averages and intervals are decided in B, tested under D14, D17 and D29",
    "A9.7": "a remark on where the samples come from",
    "E12-E16": "the paper's own experiments, in the reproduction table",
}
"""Rows of the checklist that no test proves, and why."""

TABLES = (FUNCTIONS, RULES, RECORDS, FAILURES, METRICS, EXPERIMENTS, CASES)
ROWS = dict(chain.from_iterable(table.items() for table in TABLES))
CORE = [
    *(f"A1.{i}" for i in range(1, 5)),
    *(f"A2.{i}" for i in range(1, 5)),
    *(f"A3.{i}" for i in range(1, 4)),
    *(f"A4.{i}" for i in range(1, 4)),
    *(f"R{i}" for i in (*range(1, 16), 17, 18, 19, 22, 23, 24, 25, 26)),
    *(f"DS{i}" for i in range(1, 12)),
    *(f"F{i}" for i in (*range(1, 27), 29, 30)),
    *(f"E{i}" for i in range(1, 12)),
    *(f"D{i:02d}" for i in (*range(1, 11), 12, 13, 14, *range(16, 21), 22, 23, 25, 26, 27, 29, *range(31, 35), 37)),
    *(f"D{i}" for i in range(38, 41)),
]
"""What has to be there; the worked cases have gaps in their numbers."""


def test_every_row_is_proved_by_a_test_that_is_there() -> None:
    assert missing(ROWS, TESTS) == []


def test_no_row_is_forgotten_or_both_proved_and_left_out() -> None:
    assert [row for row in CORE if row not in ROWS] == []
    assert set(ROWS) & set(LEFT_OUT) == set() and len(ROWS) == sum(map(len, TABLES))


def test_a_test_that_is_gone_is_found() -> None:
    gone = {"R77": ("right", f"{A}there_is_no_such_test"), "R78": ("right",)}
    assert missing(gone, TESTS) == [f"R77: {A}there_is_no_such_test", "R78: no test"]

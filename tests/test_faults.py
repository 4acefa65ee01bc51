"""Faults that users of RAG systems have met, each with the test that shows ours does not have it.

To add a fault: a row in `PROVED` under its id, what is right in a few words, and the tests that prove it as
`file below tests::function`. A test that is renamed or removed is found here.
"""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent

Proof = tuple[str, ...]
"""What is right, and then the tests that show it."""

LOSS: dict[str, Proof] = {
    "A1": ("the prior enters once a sequence", "losses/test_marginals.py::test_hand_values_of_the_losses",
           "losses/test_marginals.py::test_equals_brute_force"),
    "A3": ("the first and only answer token is scored",
           "test_model_targets.py::test_a_one_token_answer_without_bos_is_scored",
           "generator/test_seq2seq.py::test_a_single_token_target_is_scored"),
    "A4": ("an example is read alike alone and in a batch",
           "test_model_targets.py::test_an_example_alone_is_read_and_scored_as_among_64"),
    "A5": ("padding changes no loss", "generator/test_seq2seq.py::test_padding_of_inputs_and_labels_changes_nothing",
           "losses/test_marginals.py::test_more_padding_changes_no_loss_and_no_gradient"),
    "A6": ("-100 is padding, an impossible label is named",
           "generator/test_seq2seq.py::test_padding_of_inputs_and_labels_changes_nothing",
           "losses/test_token_logprobs.py::test_a_label_outside_the_vocabulary_is_named_with_its_position"),
    "A7": ("a loss is a mean that its name states", "losses/test_reductions.py::test_each_name_against_numpy",
           "losses/test_reductions.py::test_the_batch_twice_has_the_same_mean"),
    "A8": ("micro-batches give the gradient of the whole batch",
           "losses/test_reductions.py::test_accumulation_weighs_by_what_is_averaged",
           "training/test_step.py::test_uneven_micro_batches_weigh_every_example_alike",
           "training/test_processes.py::test_two_processes_with_uneven_shares_have_the_losses_and_gradients_of_one"),
    "A9": ("smoothing leaves padding and prior out",
           "losses/test_label_smoothing.py::test_uniform_outputs_have_the_plain_loss_for_any_prior",
           "losses/test_label_smoothing.py::test_gradient_of_the_scores_is_the_stated_formula",
           "losses/test_label_smoothing.py::test_more_padding_changes_nothing"),
    "A10": ("the query encoder learns, and a collapse is told",
            "training/test_loop.py::test_each_group_gets_a_gradient_in_every_tensor",
            "training/test_loop.py::test_the_useful_passage_gains_while_index_and_passage_vectors_stand_still",
            "training/test_collapse.py::test_collapse_is_told_once_and_repeated_questions_are_no_collapse"),
    "A11": ("n_docs of a call counts on the whole path",
            "test_model.py::test_n_docs_at_call_time_equals_a_model_built_with_it"),
    "A13": ("an overflow is skipped and counted",
            "training/test_step.py::test_an_fp16_overflow_is_skipped_counted_and_over_when_the_scale_fits",
            "training/test_records.py::test_an_evaluation_after_a_skipped_step_is_never_the_best"),
}  # fmt: skip

GENERATION: dict[str, Proof] = {
    "B1": ("every passage has all beams, answers come by their marginal",
           "generator/test_bart_decoders.py::test_num_beams_are_searched_per_passage_and_answers_come_back_by_their_marginal"),
    "B3": ("passages of one's own need no retriever, but scores",
           "test_model.py::test_passages_brought_by_the_caller_need_no_retriever",
           "test_generate.py::test_passages_without_scores_are_refused_by_name"),
    "B5": ("a rule on tokens is followed and knows its question",
           "decoding/test_constraints.py::test_the_callers_rule_is_asked_about_the_question_its_passage_and_the_prefix",
           "test_generate.py::test_a_rule_of_the_caller_reaches_the_decoder",
           "decoding/test_settings.py::test_an_unknown_setting_is_an_error"),
    "B6": ("no default of a checkpoint decides a length",
           "generator/test_bart_decoders.py::test_hidden_defaults_of_a_checkpoint_have_no_say",
           "test_scripts.py::test_what_a_checkpoint_would_have_generate_do_is_shown_and_not_done",
           "decoding/test_settings.py::test_a_cut_answer_has_no_eos_and_the_probability_of_its_prefix"),
    "B7": ("a cache changes no answer", "generator/test_bart_decoders.py::test_sharing_a_cache_and_no_cache_agree"),
    "B8": ("each text meets its own tokenizer", "generator/test_inputs.py::test_ids_of_another_tokenizer_do_not_decode",
           "test_letter_by_letter.py::test_question_and_passage_reach_the_generator_as_they_were_written"),
    "B9": ("a checkpoint is loaded as what it is",
           "training/test_checkpoint.py::test_another_kind_is_refused",
           "parity/test_rag_checkpoint.py::test_a_checkpoint_of_one_kind_is_not_loaded_as_the_other"),
    "B10": ("missing weights are an error", "generator/test_seq2seq.py::test_missing_and_surplus_weights_are_errors",
            "parity/test_rag_checkpoint.py::test_a_missing_key_is_named"),
    "B11": ("all parts of a step are on one device",
            "test_devices.py::test_every_weight_and_buffer_goes_along",
            "test_devices.py::test_what_the_host_holds_travels_once_and_in_float32",
            "test_devices.py::test_a_gpu_answers_and_scores_as_the_host_does"),
    "B12": ("every family trains, is saved and answers",
            "test_families.py::test_a_step_a_checkpoint_and_an_answer_of_each_family",
            "generator/test_causal_lm.py::test_the_model_trains_answers_and_comes_back_from_a_checkpoint"),
}  # fmt: skip

TRAINING: dict[str, Proof] = {
    "D6": ("a resumed run is the run never interrupted",
           "training/test_resume.py::test_an_interrupted_run_ends_as_the_whole_one",
           "training/test_processes.py::test_two_interrupted_processes_end_as_two_that_never_were"),
    "D7": ("the best is the best by its name and direction",
           "training/test_records.py::test_the_best_has_the_named_metric_and_direction",
           "training/test_loop.py::test_a_misspelt_metric_ends_the_run_before_the_first_step"),
    "D8": ("a metric is over examples, not over batches",
           "training/test_loop.py::test_the_mean_is_over_examples_not_over_batches"),
    "D9": ("what is saved is all that is needed",
           "training/test_checkpoint.py::test_a_moved_checkpoint_gives_the_same_losses_and_answers_without_a_network"),
    "D10": ("many passages fit the memory of few, and a lack of it is explained",
            "test_model_groups.py::test_groups_give_the_loss_and_gradients_of_all_passages_together",
            "test_model_groups.py::test_ten_times_the_passages_train_in_the_memory_of_a_tenth",
            "training/test_step.py::test_a_batch_beyond_the_memory_names_what_takes_it"),
    "D11": ("a run that trained nothing ends with an error",
            "training/test_loop.py::test_no_step_and_no_example_are_errors",
            "training/test_loop.py::test_weights_that_never_change_are_an_error"),
}  # fmt: skip

RETRIEVAL: dict[str, Proof] = {
    "C1": ("row r of the index is passage r",
           "retriever/test_dense.py::test_each_passage_finds_itself",
           "retriever/test_ray_search.py::test_any_number_of_shards_gives_what_one_index_gives"),
    "C3": ("what is missing is named with the command that makes it",
           "retriever/test_edition.py::test_no_index_there",
           "retriever/test_edition.py::test_a_missing_index_file_is_named",
           "retriever/test_edition.py::test_an_index_needs_no_network",
           "test_retriever_scripts.py::test_what_is_missing_is_told_before_any_weights_are_read",
           "test_retriever_scripts.py::test_shards_without_ray_are_one_line_with_the_command"),
    "C4": ("a question reaches the generator letter by letter",
           "test_letter_by_letter.py::test_question_and_passage_reach_the_generator_as_they_were_written",
           "data/test_retriever_examples.py::test_dprs_file_letter_by_letter"),
    "C6": ("quotes, blanks and odd titles of a file stay",
           "data/test_rows.py::test_faults_c6_a_table_arrives_letter_by_letter",
           "test_letter_by_letter.py::test_titles_that_look_like_nothing_are_titles"),
    "C7": ("as many vectors as passages, or no index",
           "experiments/test_importing.py::test_a_lost_row_shifts_nothing_and_is_refused",
           "retriever/test_dense.py::test_rows_and_passages_that_do_not_match_are_refused"),
    "C8": ("an index of another encoder is refused",
           "test_scripts.py::test_an_index_of_another_encoder_is_refused_and_what_differs_is_said",
           "retriever/test_dense.py::test_vectors_of_another_encoder_are_noticed",
           "retriever/test_importing.py::test_another_encoder_of_the_same_size_is_refused"),
    "C9": ("results belong to the caller alone", "retriever/test_dense.py::test_results_belong_to_the_caller"),
    "C10": ("the metric is the dot product", "retriever/test_index.py::test_inner_product_not_distance",
            "retriever/test_index.py::test_another_metric_kind_or_size_is_refused_on_reading"),
    "C11": ("a passage that was changed is noticed", "retriever/test_dense.py::test_a_changed_passage_is_noticed"),
    "C12": ("an index is mapped and never copied",
            "retriever/test_edition.py::test_ten_gigabytes_are_opened_without_being_read",
            "retriever/test_edition.py::test_building_streams_the_vectors",
           "retriever/test_edition.py::test_an_index_file_is_mapped_and_shared"),
    "C13": ("FAISS and torch work in either order", "retriever/test_native.py::test_both_work_in_either_order"),
    "C14": ("a search in a forked worker comes to an end",
            "retriever/test_native.py::test_search_in_a_forked_worker_ends"),
    "D2": ("a worker that dies is an error, never a hang",
           "retriever/test_corpus_encoding.py::test_two_processes_one_of_them_killed_write_the_bytes_of_one",
           "retriever/test_ray.py::test_nothing_waits_for_ever",
           "retriever/test_ray_search.py::test_a_ray_that_does_not_start_is_one_line"),
    "D4": ("a swap is whole or does not happen",
           "retriever/test_hot_swap.py::test_a_kill_between_the_two_renames_is_mended",
           "retriever/test_hot_swap.py::test_a_kill_during_the_build_leaves_the_old_index",
           "retriever/test_hot_swap.py::test_answers_during_swaps_come_from_one_edition",
           "retriever/test_by_question.py::test_a_swap_between_two_searches_never_mixes_editions",
           "retriever/test_hot_swap.py::test_memory_returns_after_many_swaps",
           "retriever/test_published.py::test_shards_are_in_the_order_of_their_numbers"),
    "D5": ("every query keeps its own positive",
           "training/test_bi_encoder.py::test_uniform_scores_give_the_log_of_the_number_of_passages",
           "training/test_bi_encoder.py::test_the_positive_of_query_i_is_passage_i",
           "training/test_bi_encoder_batches.py::test_another_gold_of_the_question_is_no_negative",
           "training/test_bi_encoder_batches.py::test_the_same_passage_twice_in_a_batch_is_no_negative",
           "training/test_bi_encoder_loop.py::test_two_processes_have_the_loss_and_gradient_of_one"),
    "F2": ("no index falls back to another metric", "retriever/test_index.py::test_recall_on_unequal_norms"),
    "F3": ("too few training points are said and handled", "retriever/test_kinds.py::test_too_few_to_train_lists",
           "retriever/test_kinds.py::test_too_few_to_train_a_product_quantizer"),
    "F4": ("a parameter holds, or is refused by name", "retriever/test_kinds.py::test_parameters_are_checked",
           "retriever/test_index.py::test_nprobe_holds_after_reading"),
    "F5": ("the same vectors give the same bytes", "retriever/test_index.py::test_builds_and_reads_back_the_same",
           "retriever/test_editing.py::test_a_build_repeated_gives_the_same_bytes"),
    "F6": ("ids and number types are kept or refused", "retriever/test_dense.py::test_ids_are_kept_to_the_letter",
           "retriever/test_index.py::test_other_layouts_and_types_give_the_same"),
    "F7": ("arrays of the caller are not written to", "retriever/test_index.py::test_arrays_of_the_caller_stay"),
}  # fmt: skip

EVALUATION: dict[str, Proof] = {
    "E1": ("passages and titles are counted apart",
           "evaluation/test_retrieval.py::test_faults_e1_passages_and_titles_count_apart",
           "evaluation/test_retrieval.py::test_faults_e1_gold_is_neither_cut_nor_short_of_its_first"),
    "E2": ("a ranking in the wrong direction is refused",
           "evaluation/test_retrieval.py::test_faults_e2_a_list_read_in_the_wrong_direction_is_refused"),
    "E4": ("prediction and reference are told apart by name",
           "evaluation/test_generation.py::test_faults_e4_prediction_and_reference_are_not_swapped",
           "evaluation/test_answers.py::test_precision_and_recall_are_not_swapped"),
    "E5": ("sentences are split before they are united",
           "evaluation/test_generation.py::test_faults_e5_sentences_are_split_before_they_are_united"),
    "E6": ("references are grouped by their example",
           "evaluation/test_generation.py::test_faults_e6_references_are_not_transposed"),
    "E9": ("every form of a marker has one reading", "citations/test_claims.py::test_e9_markers",
           "citations/test_claims.py::test_e9_strict_and_lenient_reading"),
    "E10": ("an empty answer and an uncited one count", "experiments/test_audit.py::test_e10_an_empty_answer_counts",
            "citations/test_from_predictions.py::test_e10_an_empty_answer_is_a_claim_without_citation"),
    "E11": ("abbreviations do not break a claim", "citations/test_claims.py::test_e11_sentences"),
    "E12": ("the hypothesis is never cut away",
            "citations/judges/test_nli.py::test_e12_the_end_of_the_fifth_passage_counts",
            "citations/judges/test_nli.py::test_a_claim_without_room_for_a_premise_is_not_judged"),
    # Its example scores claims of a reference, which nothing here does; what it asks for is that levels are not mixed.
    "E13": ("figures of tokens, passages and claims have names",
            "evaluation/test_answers.py::test_precision_and_recall_are_not_swapped",
            "evaluation/test_retrieval.py::test_faults_e1_passages_and_titles_count_apart",
            "citations/test_metrics.py::test_alce"),
}  # fmt: skip

LAUNCHING: dict[str, Proof] = {
    "G1": ("a path means the same wherever a run writes",
           "test_config.py::test_relative_paths_start_where_the_script_was_started",
           "test_scripts.py::test_paths_start_where_the_script_was_started_even_with_chdir"),
    "G2": ("one job has one folder, two have two",
           "test_launchers.py::test_processes_of_one_job_share_a_folder_and_two_jobs_do_not",
           "training/test_lock.py::test_a_second_job_is_refused_and_the_first_named"),
    "G3": ("an override arrives as written or is refused",
           "test_config.py::test_text_with_special_characters_arrives_as_it_is",
           "test_config.py::test_numbers_arrive_as_numbers",
           "test_config.py::test_a_misspelt_key_on_the_command_line_is_an_error",
           "test_config.py::test_every_primary_config_resolves"),
    "G4": ("of many runs what is done stays and failures show",
           "experiments/test_reproduce.py::test_a_run_that_fails_spoils_no_other_and_shows_its_end",
           "experiments/test_reproduce.py::test_reuse_runs_only_the_seeds_that_are_not_there_and_no_mean_leaves_one_out"),
    "G6": ("no key and no wandb ends no training",
           "training/test_tracking.py::test_a_missing_wandb_is_one_warning_and_the_record_is_complete",
           "training/test_tracking.py::test_online_without_a_key_becomes_offline"),
    "G7": ("the local log has each step once",
           "training/test_records.py::test_resumed_steps_stand_once_and_torn_lines_are_dropped",
           "training/test_records.py::test_of_two_rows_of_a_step_the_last_wins"),
}  # fmt: skip

PROVED = {**LOSS, **GENERATION, **TRAINING, **RETRIEVAL, **EVALUATION, **LAUNCHING}


def missing(proved: dict[str, Proof], tests: Path) -> list[str]:
    """Ids whose tests are not there, and ids without one."""
    found = []
    for fault, (_, *proofs) in proved.items():
        for proof in proofs or [""]:
            file, _, function = proof.partition("::")
            path = tests / file
            text = path.read_text(encoding="utf-8") if path.is_file() else ""
            if not function or not re.search(rf"^(?:    )?def {function}\(", text, re.MULTILINE):
                found.append(f"{fault}: {proof or 'no test'}")
    return found


def test_every_fault_is_proved_by_a_test_that_is_there() -> None:
    assert missing(PROVED, TESTS) == []


def test_every_fault_says_what_is_right() -> None:
    assert all(len(right.split()) >= 4 and "::" not in right for right, *_ in PROVED.values())
    assert len(PROVED) == sum(map(len, (LOSS, GENERATION, TRAINING, RETRIEVAL, EVALUATION, LAUNCHING)))


def test_a_test_that_is_gone_is_found() -> None:
    proved = {"X1": ("right", "test_faults.py::test_nothing"), "X2": ("right", "none.py::test_a"), "X3": ("right",)}
    assert missing(proved, TESTS) == [
        "X1: test_faults.py::test_nothing",
        "X2: none.py::test_a",
        "X3: no test",
    ]
    assert missing({"X4": ("right", "test_faults.py::test_a_test_that_is_gone_is_found")}, TESTS) == []

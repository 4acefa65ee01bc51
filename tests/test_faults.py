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
           "decoding/test_settings.py::test_unknown_settings_are_errors_all_at_once"),
    "B6": ("no default of a checkpoint decides a length",
           "generator/test_bart_decoders.py::test_hidden_defaults_of_a_checkpoint_have_no_say",
           "decoding/test_settings.py::test_a_cut_answer_has_no_eos_and_the_probability_of_its_prefix"),
    "B7": ("a cache changes no answer", "generator/test_bart_decoders.py::test_sharing_a_cache_and_no_cache_agree"),
    "B8": ("each text meets its own tokenizer", "generator/test_inputs.py::test_ids_of_another_tokenizer_do_not_decode",
           "test_letter_by_letter.py::test_question_and_passage_reach_the_generator_as_they_were_written"),
    "B9": ("a checkpoint is loaded as what it is",
           "training/test_checkpoint.py::test_another_kind_is_refused_unless_allowed",
           "parity/test_rag_checkpoint.py::test_a_checkpoint_of_one_kind_is_not_loaded_as_the_other"),
    "B10": ("missing weights are an error", "generator/test_seq2seq.py::test_missing_and_surplus_weights_are_errors",
            "parity/test_rag_checkpoint.py::test_a_missing_key_is_named"),
    "B11": ("all parts of a step are on one device",
            "test_devices.py::test_every_weight_and_buffer_goes_along",
            "test_devices.py::test_what_the_host_holds_travels_once_and_in_float32"),
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

PROVED = {**LOSS, **GENERATION, **TRAINING}


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
    assert len(PROVED) == len(LOSS) + len(GENERATION) + len(TRAINING)


def test_a_test_that_is_gone_is_found() -> None:
    proved = {"X1": ("right", "test_faults.py::test_nothing"), "X2": ("right", "none.py::test_a"), "X3": ("right",)}
    assert missing(proved, TESTS) == [
        "X1: test_faults.py::test_nothing",
        "X2: none.py::test_a",
        "X3: no test",
    ]
    assert missing({"X4": ("right", "test_faults.py::test_a_test_that_is_gone_is_found")}, TESTS) == []

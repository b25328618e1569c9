"""Which tests hold each sentence of docs/reference/run_contract.md."""

HELD_BY: dict[int, tuple[str, ...]] = {
    1: (
        "test_every_way_of_running_gives_the_same",
        "test_a_step_that_changes_the_list_it_is_given_changes_no_kept_result",
        "test_one_many_threads_and_processes_give_the_same_bits",
        "test_a_vector_does_not_depend_on_the_texts_beside_it",
    ),
    2: ("test_order_is_kept_whichever_ends_first",),
    3: (
        "test_a_failed_row_leaves_the_others_alone",
        "test_failures_stay_in_their_row_through_every_combinator",
    ),
    4: (
        "test_best_of_n_yields_n_different_samples",
        "test_samples_of_samples_all_differ",
    ),
    5: ("test_only_costly_steps_are_kept",),
    6: (
        "test_a_cached_result_never_carries_anothers_provenance",
        "test_rankings_inside_tuples_belong_to_who_asks",
        "test_what_comes_from_the_cache_equals_what_was_computed",
    ),
    7: (
        "test_equal_steps_at_the_same_time_are_computed_once",
        "test_equal_rows_of_batches_at_the_same_time_are_computed_once",
    ),
    8: (
        "test_a_degraded_result_is_not_kept",
        "test_a_failure_is_never_kept",
    ),
    9: (
        "test_a_moving_resource_is_not_kept",
        "test_a_cached_result_is_the_uncached_one_whoever_asks_and_whenever",
    ),
    10: ("test_two_principals_never_share_an_entry",),
    11: ("test_usage_is_logical_and_spent_is_real",),
    12: (
        "test_a_budget_of_n_calls_never_makes_more",
        "test_the_room_of_a_settled_call_is_never_given_twice",
    ),
    13: (
        "test_a_spent_budget_ends_a_loop_and_leaves_one_call",
        "test_a_spent_budget_ends_a_loop_through_steps_of_several_calls",
    ),
    14: (
        "test_a_guard_limits_its_body_alone",
        "test_a_limit_ends_with_the_guard_also_when_it_fails",
        "test_a_guard_holds_its_limit_without_a_run_too",
    ),
    15: (
        "test_lanes_add_up_to_the_run",
        "test_a_reservation_for_a_batch_is_shared_by_its_rows",
    ),
    16: (
        "test_nested_branches_keep_all_threads_at_work",
        "test_steps_that_await_steps_go_on_where_all_threads_wait",
    ),
    17: ("test_no_more_steps_at_once_than_threads",),
    18: (
        "test_steps_that_never_wait_stay_in_the_callers_thread",
        "test_arms_that_never_wait_stay_there_beside_arms_that_do",
    ),
    19: (
        "test_a_stream_ends_with_the_plain_result",
        "test_a_step_that_stands_twice_is_final_only_where_it_is_last",
    ),
    20: (
        "test_rejected_text_is_retracted",
        "test_what_a_loop_sends_is_what_it_gives_also_when_the_budget_ends_it",
    ),
    21: (
        "test_closing_a_stream_stops_the_work",
        "test_a_stream_that_nobody_holds_any_more_stops",
        "test_closing_does_not_wait_for_ever_for_a_step_that_sleeps",
    ),
    22: (
        "test_cancelling_stops_everything",
        "test_what_fails_because_it_was_closed_is_no_failed_row",
    ),
    23: ("test_without_a_principal_one_is_anonymous",),
    24: ("test_nothing_restricted_is_seen_without_a_principal",),
    25: (
        "test_a_run_sees_one_snapshot",
        "test_a_run_under_way_reads_no_more_and_then_again",
        "test_no_cache_shows_it",
    ),
    26: (
        "test_every_step_leaves_a_span",
        "test_a_broken_journal_never_fails_an_answer",
        "test_a_file_that_vanishes_or_is_locked_never_fails_an_answer",
    ),
    27: (
        "test_a_full_journal_drops_and_counts",
        "test_no_span_is_lost_between_threads",
        "test_the_file_does_not_grow_for_ever",
    ),
    28: ("test_a_damaged_or_hostile_entry_is_computed_again",),
    29: (
        "test_several_threads_share_a_run",
        "test_a_run_inside_a_run_has_its_own_rights_and_costs",
    ),
    30: ("test_nothing_is_left_behind_by_many_questions",),
    31: (
        "test_two_processes_share_one_file",
        "test_a_forked_process_writes_and_reads_for_itself",
    ),
    32: (
        "test_a_lane_has_what_each_retriever_found_and_nothing_that_was_made_of_it",
        "test_each_lane_has_its_own_cost_and_the_run_the_sum",
    ),
    33: (
        "test_an_answer_tells_why_the_loop_before_it_ended",
        "test_rows_of_a_batch_tell_their_own_reasons",
    ),
    34: (
        "test_awaited_and_plain_runs_give_equal_results",
        "test_200_questions_at_the_same_time_each_with_its_own_context_and_cost",
    ),
    35: (
        "test_cancelling_a_task_stops_its_own_work_and_no_other",
        "test_cancelling_closes_the_socket_that_a_model_waits_for",
        "test_tasks_cancelled_at_any_time_leave_the_others_alone",
    ),
    36: (
        "test_a_slow_reader_slows_the_flow",
        "test_a_stream_has_one_thread_and_ends_with_its_reader",
    ),
    37: (
        "test_a_run_is_entered_in_one_thread_pulled_from_others_and_left_in_a_third",
        "test_where_a_run_was_entered_that_was_left_elsewhere_nobody_has_its_rights",
    ),
    38: (
        "test_144_flows_over_three_retrievers_search_three_times",
        "test_rows_and_threads_at_the_same_time_compute_once",
    ),
    39: (
        "test_a_shared_run_gives_what_a_plain_one_gives",
        "test_a_shared_result_has_the_provenance_of_who_asks",
        "test_what_is_shared_loses_no_evidence_that_computing_it_would_give",
        "test_a_lane_has_the_retrievals_of_shared_steps_too",
        "test_what_failed_or_is_degraded_is_not_shared",
        "test_what_moves_is_asked_again_and_what_has_no_fingerprint_is_shared",
        "test_nothing_is_shared_with_another_run_or_without_being_told",
    ),
    40: ("test_what_is_shared_takes_bounded_memory_and_what_was_used_last_stays",),
    41: (
        "test_what_fails_is_counted_at_the_step_of_the_flow_in_which_it_fails",
        "test_a_warning_is_given_where_nobody_records_what_failed",
    ),
}

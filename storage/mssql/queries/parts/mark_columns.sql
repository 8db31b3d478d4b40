-- The mark of a live message m (E12), which rowlock's scanShown reads after the payload.
m.mark_dead_reason, m.settle_time, m.mark_delay_us, m.mark_error, m.mark_reason_code, m.mark_result

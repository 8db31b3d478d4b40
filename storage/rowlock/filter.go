package rowlock

import (
	"encoding/json"
	"fmt"

	"github.com/queuebox/queuebox/storage"
)

// filterArgs are the parameters by which the statements that share {{filter}} pick messages:
// those of that part, and what each kind of message reads in its own way: states and
// dead_reasons, a bit for each and 0 for all, and the ordering key.
func filterArgs(v Values, p storage.ListMessagesParams) ([]Arg, error) {
	codes, err := rowList(p.ReasonCodes)
	if err != nil {
		return nil, fmt.Errorf("reason codes: %w", err)
	}
	return args(
		a("queue_id", p.QueueID),
		a("states", bits(p.States)),
		a("dead_reasons", bits(p.DeadReasons)),
		a("ordering_key", v.Name(p.OrderingKey)),
		a("reason_codes", v.List(codes)),
		a("error_contains", v.Text(p.ErrorContains)),
		a("worker_id", v.Text(p.WorkerID)),
		a("min_create_time", v.Time(p.MinCreateTime)),
		a("max_create_time", v.Time(p.MaxCreateTime)),
	), nil
}

// bits has one bit for each number of a list.
func bits[T ~int16](list []T) int32 {
	var set int32
	for _, n := range list {
		set |= 1 << n
	}
	return set
}

// rowList is a list of rows with one column each; nil where there are none.
func rowList[T any](list []T) ([]byte, error) {
	if len(list) == 0 {
		return nil, nil
	}
	rows := make([][1]T, len(list))
	for i, v := range list {
		rows[i][0] = v
	}
	return json.Marshal(rows)
}

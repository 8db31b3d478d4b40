package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// UpdateQueue changes the fields that the mask names; "*" names them all.
func (a *api) UpdateQueue(ctx context.Context, req *queueboxv1.UpdateQueueRequest) (*queueboxv1.UpdateQueueResponse, error) {
	c := &check{}
	c.queue("queue.queue", req.GetQueue().GetQueue())
	version := c.etag("queue.etag", req.GetQueue().GetEtag())
	fields := c.mask("update_mask", req.GetUpdateMask().GetPaths())
	// What is wrong with a value does not depend on what is stored.
	c.within("queue.", func() {
		var scratch storage.QueueSettings
		for _, f := range fields {
			f.set(c, &scratch, req.GetQueue(), a.cfg.QueueDefaults)
		}
	})
	if err := c.err(); err != nil {
		return nil, err
	}
	q, err := a.updateQueue(ctx, req.GetQueue(), fields, version)
	if err != nil {
		return nil, err
	}
	return &queueboxv1.UpdateQueueResponse{Queue: wireQueue(q)}, nil
}

// updateTries bounds the repeats of an update without an etag that another update
// overtook.
const updateTries = 5

func (a *api) updateQueue(ctx context.Context, in *queueboxv1.Queue, fields []queueField, version int64) (storage.Queue, error) {
	call, cancel := a.statement(ctx)
	defer cancel()
	for try := 1; ; try++ {
		old, err := a.store.GetQueue(call, in.GetQueue())
		if err != nil {
			return storage.Queue{}, err
		}
		if version != 0 && version != old.Version {
			return storage.Queue{}, storage.ErrVersionMismatch
		}
		s := old.QueueSettings
		c := &check{prefix: "queue."}
		for _, f := range fields {
			f.set(c, &s, in, a.cfg.QueueDefaults)
		}
		c.settings(s)
		if err := c.err(); err != nil {
			return storage.Queue{}, err
		}
		read := a.now()
		q, err := a.store.UpdateQueue(call, in.GetQueue(), s, old.Version)
		if errors.Is(err, storage.ErrVersionMismatch) && version == 0 && try < updateTries {
			continue
		}
		if err != nil {
			return storage.Queue{}, err
		}
		a.catalog.put(q, read)
		if old.Paused && !q.Paused || old.MaxInFlight != q.MaxInFlight || old.MaxClaimsPerSecond != q.MaxClaimsPerSecond {
			a.dispatch.Announce(q.ID, time.Time{})
		}
		return q, nil
	}
}

// mask finds the fields of an update mask.
func (c *check) mask(field string, paths []string) []queueField {
	all := queueFields()
	if len(paths) == 0 {
		c.wrong(field, `is empty; name the fields to change, or "*" for all`)
		return nil
	}
	if slices.Equal(paths, []string{"*"}) {
		return all
	}
	var out []queueField
	for i, p := range paths {
		k := slices.IndexFunc(all, func(f queueField) bool { return f.path == p })
		if k < 0 {
			names := make([]string, len(all))
			for j, f := range all {
				names[j] = f.path
			}
			c.wrong(fmt.Sprintf("%s.paths[%d]", field, i), "names no field that can be changed; these can: %v", names)
			continue
		}
		out = append(out, all[k])
	}
	return out
}

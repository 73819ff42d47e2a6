package oci

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// EventOptions are a request for a container's use of resources.
type EventOptions struct {
	Once     bool
	Interval time.Duration
	Out      io.Writer
}

// event is one line of Events, with the fields of runc's that a VM has.
type event struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	Data stats  `json:"data"`
}

type stats struct {
	CPU struct {
		Usage struct {
			Total uint64 `json:"total"`
		} `json:"usage"`
	} `json:"cpu"`
	Memory struct {
		Usage struct {
			Limit uint64 `json:"limit"`
			Usage uint64 `json:"usage"`
		} `json:"usage"`
	} `json:"memory"`
	Pids struct {
		Current uint64 `json:"current"`
	} `json:"pids"`
}

// Events writes the container's use of resources in the guest, one JSON object each interval, until it ends.
func (d *Door) Events(ctx context.Context, id string, o EventOptions) error {
	for {
		e, err := d.event(ctx, id)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(o.Out).Encode(e); err != nil || o.Once {
			return err
		}
		select {
		case <-time.After(max(o.Interval, time.Millisecond)):
		case <-ctx.Done():
			return nil
		}
	}
}

func (d *Door) event(ctx context.Context, id string) (*event, error) {
	r, err := d.read(id)
	if err != nil {
		return nil, err
	}
	if !alive(r.Surrogate) {
		return nil, ErrNotRunning
	}
	st, err := d.Stats(ctx, id)
	if err != nil {
		return nil, err
	}
	e := &event{Type: "stats", ID: id}
	e.Data.CPU.Usage.Total = st.CPUUsec * 1000
	e.Data.Memory.Usage.Usage, e.Data.Pids.Current = st.MemoryBytes, st.Pids
	return e, nil
}

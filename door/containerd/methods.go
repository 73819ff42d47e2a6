package containerd

import (
	"context"

	"github.com/containerd/ttrpc"

	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
)

// taskServices are the names of the Task service. Versions 2 and 3 have the same methods and messages, except that a few
// messages of version 3 have more fields (TestTaskVersions).
var taskServices = []string{"containerd.task.v2.Task", "containerd.task.v3.Task"}

// taskMethods returns the methods of both versions.
func (s *Services) taskMethods() map[string]ttrpc.Method {
	return map[string]ttrpc.Method{
		"State":      method(s.state),
		"Create":     method(s.create),
		"Start":      method(s.start),
		"Delete":     method(s.delete),
		"Pids":       method(s.pids),
		"Pause":      method(s.pause),
		"Resume":     method(s.resume),
		"Checkpoint": method(s.checkpoint),
		"Kill":       method(s.kill),
		"Exec":       method(s.register),
		"ResizePty":  method(s.resize),
		"CloseIO":    method(s.closeIO),
		"Update":     method(s.update),
		"Wait":       method(s.wait),
		"Stats":      method(s.stats),
		"Connect":    method(s.connect),
		"Shutdown":   method(s.shutdown),
	}
}

// method returns a method that decodes its request, and answers errors by a status.
func method[Q, R any](call func(context.Context, *Q) (*R, error)) ttrpc.Method {
	return func(ctx context.Context, decode func(any) error) (any, error) {
		var q Q
		if err := decode(&q); err != nil {
			return nil, err
		}
		r, err := call(ctx, &q)
		if err != nil {
			return nil, grpccode.Status(err)
		}
		return r, nil
	}
}

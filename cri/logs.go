package cri

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"google.golang.org/protobuf/encoding/protojson"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/undo"
)

// openNewLog opens a log file; one that was not there goes again if the
// operation fails, as the CRI wants it.
func (s *Service) openNewLog(path string, rollback *undo.Stack) (*os.File, error) {
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		rollback.Push("log file", func(context.Context) error { return os.Remove(path) })
	}
	return s.openLog(path)
}

// replaceConfig stores another configuration; the pod's mu is held.
func (c *container) replaceConfig(next *runtimeapi.ContainerConfig) error {
	raw, err := protojson.Marshal(next)
	if err != nil {
		return invalid("encode the configuration: %v", err)
	}
	record := c.Container
	record.Config = json.RawMessage(raw)
	if err := c.pod.s.store.PutContainer(c.pod.id, &record); err != nil {
		return fail(err, "store container %s", short(c.ID))
	}
	c.Container, c.config = record, next
	return nil
}

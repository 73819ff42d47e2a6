package cri

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/failure"
)

// podRecord is the service's record of a pod.
type podRecord struct {
	config  *runtimeapi.PodSandboxConfig
	handler string
	options runtimev1.PodOptions
}

// containerRecord is the service's record of a container. The configuration lacks the environment and the command,
// which may contain secrets.
type containerRecord struct {
	config   *runtimeapi.ContainerConfig
	imageRef string
}

// stored is the stored form of a record.
type stored struct {
	Config   json.RawMessage      `json:"config"`
	Handler  string               `json:"handler,omitempty"`
	Options  runtimev1.PodOptions `json:"options,omitzero"`
	ImageRef string               `json:"imageRef,omitempty"`
}

func encode(config proto.Message, s stored) (json.RawMessage, error) {
	raw, err := protojson.Marshal(config)
	if err == nil {
		s.Config = raw
		raw, err = json.Marshal(s)
	}
	if err != nil {
		return nil, failure.Invalid("encode the configuration: %v", err)
	}
	return raw, nil
}

// decode reads a record. Missing parts are empty, for example in a record of another door.
func decode(raw json.RawMessage, config proto.Message) (s stored, err error) {
	if len(raw) == 0 {
		return s, nil
	}
	if err = json.Unmarshal(raw, &s); err == nil && len(s.Config) > 0 {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(s.Config, config)
	}
	if err != nil {
		return s, fmt.Errorf("stored configuration: %w", err)
	}
	return s, nil
}

// records translates pods and containers of the engine with the records that the service gave it. It is safe for
// concurrent use.
type records struct {
	log        *slog.Logger
	pods       decoded[podRecord]
	containers decoded[containerRecord]
}

func (r *records) podOf(p *engine.Pod) podRecord {
	return r.pods.get(p.ID, p.Record, func() podRecord {
		config := &runtimeapi.PodSandboxConfig{}
		st, err := decode(p.Record, config)
		if err != nil {
			r.log.Error("cannot read a pod's record", "pod", p.ID, "error", err)
		}
		return podRecord{config, st.Handler, st.Options}
	})
}

func (r *records) containerOf(c *engine.Container) containerRecord {
	return r.containers.get(c.ID, c.Record, func() containerRecord {
		config := &runtimeapi.ContainerConfig{}
		st, err := decode(c.Record, config)
		if err != nil {
			r.log.Error("cannot read a container's record", "container", c.ID, "error", err)
		}
		return containerRecord{config, st.ImageRef}
	})
}

// decoded caches decoded records by id until the record is replaced. Its results must not be changed.
type decoded[T any] struct {
	mu    sync.Mutex
	known map[string]known[T]
}

type known[T any] struct {
	raw   json.RawMessage
	value T
}

func (d *decoded[T]) get(id string, raw json.RawMessage, read func() T) T {
	d.mu.Lock()
	defer d.mu.Unlock()
	// A record is replaced and never changed, so the same bytes are the same record.
	if k, ok := d.known[id]; ok && len(k.raw) == len(raw) && (len(raw) == 0 || &k.raw[0] == &raw[0]) {
		return k.value
	}
	if d.known == nil {
		d.known = map[string]known[T]{}
	}
	value := read()
	d.known[id] = known[T]{raw, value}
	return value
}

func (d *decoded[T]) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.known, id)
}

// PodConfig returns the configuration in a pod's record, of this instance or another. It is empty for records of other
// packages.
func PodConfig(record json.RawMessage) *runtimeapi.PodSandboxConfig {
	config := &runtimeapi.PodSandboxConfig{}
	if _, err := decode(record, config); err != nil {
		return &runtimeapi.PodSandboxConfig{}
	}
	return config
}

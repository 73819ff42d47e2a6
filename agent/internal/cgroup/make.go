package cgroup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// resources are OCI resources. Make refuses a resource of type unset if it has a value.
type resources struct {
	Memory struct {
		Limit             *int64 `json:"limit"`
		Swap              *int64 `json:"swap"` // with the memory
		Reservation       *int64 `json:"reservation"`
		Kernel            unset  `json:"kernel"`
		KernelTCP         unset  `json:"kernelTCP"`
		Swappiness        unset  `json:"swappiness"`
		DisableOOMKiller  unset  `json:"disableOOMKiller"`
		UseHierarchy      unset  `json:"useHierarchy"`
		CheckBeforeUpdate unset  `json:"checkBeforeUpdate"`
	} `json:"memory"`
	CPU struct {
		Shares          uint64  `json:"shares"`
		Quota           int64   `json:"quota"`
		Period          uint64  `json:"period"`
		Burst           *uint64 `json:"burst"` // the agent sets it later
		CPUs            string  `json:"cpus"`
		Mems            string  `json:"mems"`
		Idle            *int64  `json:"idle"`
		RealtimePeriod  unset   `json:"realtimePeriod"`
		RealtimeRuntime unset   `json:"realtimeRuntime"`
	} `json:"cpu"`
	Pids struct {
		Limit int64 `json:"limit"`
	} `json:"pids"`
	HugePages []struct {
		Size  string `json:"pageSize"`
		Limit uint64 `json:"limit"`
	} `json:"hugepageLimits"`
	Unified map[string]string `json:"unified"`
	Devices unset             `json:"devices"`
	BlockIO unset             `json:"blockIO"`
	Network unset             `json:"network"`
	RDMA    unset             `json:"rdma"`
}

// unset is a value that must be missing or empty.
type unset struct{}

// UnmarshalJSON refuses all but the empty values.
func (unset) UnmarshalJSON(raw []byte) error {
	if slices.Contains([]string{"null", "0", "false", "{}", "[]", `""`}, string(raw)) {
		return nil
	}
	return errdefs.ErrNotImplemented
}

// setting is a file of a cgroup and its new content.
type setting struct {
	file, value string
	optional    bool // the kernel may lack the file
}

// Make creates the cgroup with OCI resources, as crun does. It refuses rare resources with ErrNotImplemented. After an error
// the cgroup may exist.
func (d Dir) Make(raw json.RawMessage) error {
	settings, err := parse(raw)
	if err != nil {
		return fmt.Errorf("resources: %w", err)
	}
	if err := os.Mkdir(string(d), 0o755); err != nil {
		return err
	}
	return d.apply(settings)
}

func parse(raw json.RawMessage) ([]setting, error) {
	var r resources
	if len(raw) == 0 {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return nil, err
	}
	return r.settings()
}

// apply writes the files of an existing cgroup.
func (d Dir) apply(settings []setting) error {
	for _, s := range settings {
		err := d.write(s)
		if s.optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// write writes a file that exists.
func (d Dir) write(s setting) error {
	f, err := os.OpenFile(filepath.Join(string(d), s.file), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(s.value)
	return errors.Join(err, f.Close())
}

// The ranges of OCI's shares and the kernel's weight, which correspond linearly, and the kernel's default period.
const (
	leastShares, mostShares = 2, 262_144
	leastWeight, mostWeight = 1, 10_000
	defaultPeriod           = 100_000
)

func (r *resources) settings() (all []setting, err error) {
	add := func(file, value string) { all = append(all, setting{file: file, value: value}) }
	number := func(n int64) string {
		if n == -1 {
			return "max"
		}
		return strconv.FormatInt(n, 10)
	}
	if limit := r.Memory.Limit; limit != nil {
		add("memory.max", number(*limit))
	}
	if swap := r.Memory.Swap; swap != nil {
		only := *swap
		if only != -1 {
			if r.Memory.Limit == nil || only < *r.Memory.Limit {
				return nil, errdefs.ErrInvalidArgument
			}
			only -= *r.Memory.Limit
		}
		all = append(all, setting{"memory.swap.max", number(only), true})
	}
	if low := r.Memory.Reservation; low != nil {
		add("memory.low", strconv.FormatInt(*low, 10))
	}
	if r.Pids.Limit != 0 {
		add("pids.max", number(r.Pids.Limit))
	}
	if shares := r.CPU.Shares; shares != 0 {
		if shares < leastShares || shares > mostShares {
			return nil, errdefs.ErrNotImplemented
		}
		weight := leastWeight + (shares-leastShares)*(mostWeight-leastWeight)/(mostShares-leastShares)
		add("cpu.weight", strconv.FormatUint(weight, 10))
	}
	if r.CPU.Idle != nil {
		add("cpu.idle", strconv.FormatInt(*r.CPU.Idle, 10))
	}
	if quota, period := r.CPU.Quota, r.CPU.Period; quota > 0 || period > 0 {
		value := "max"
		if quota > 0 {
			value = strconv.FormatInt(quota, 10)
		}
		if period == 0 {
			period = defaultPeriod
		}
		add("cpu.max", value+" "+strconv.FormatUint(period, 10))
	}
	if r.CPU.CPUs != "" {
		add("cpuset.cpus", r.CPU.CPUs)
	}
	if r.CPU.Mems != "" {
		add("cpuset.mems", r.CPU.Mems)
	}
	for _, h := range r.HugePages {
		if strings.Contains(h.Size, "/") {
			return nil, errdefs.ErrInvalidArgument
		}
		add("hugetlb."+h.Size+".max", strconv.FormatUint(h.Limit, 10))
	}
	for _, file := range slices.Sorted(maps.Keys(r.Unified)) {
		if strings.Contains(file, "/") || strings.HasPrefix(file, "cgroup.") { // those move or stop processes
			return nil, errdefs.ErrInvalidArgument
		}
		add(file, r.Unified[file])
	}
	return all, nil
}

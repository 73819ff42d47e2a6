package oci

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// MaxConfig bounds config.json, in bytes. It fits into a call to the guest.
const MaxConfig = 3 << 20

// ReadConfig reads a config.json. One that is longer than MaxConfig is ErrInvalid.
func ReadConfig(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxConfig+1))
	if err != nil {
		return nil, fmt.Errorf("read config.json: %w", err)
	}
	return data, CheckConfig(data)
}

// CheckConfig returns ErrInvalid for a config.json that is longer than MaxConfig.
func CheckConfig(data []byte) error {
	if len(data) > MaxConfig {
		return fmt.Errorf("%w: config.json is longer than %d bytes (make the environment or the arguments smaller)", ErrInvalid, MaxConfig)
	}
	return nil
}

// ReadBundle reads the config.json of the bundle in dir, which is untrusted. A file other than a regular one, or longer
// than MaxConfig, is ErrInvalid.
func ReadBundle(dir string) ([]byte, error) {
	// Without O_NONBLOCK, opening a FIFO blocks until a writer opens it.
	file, err := os.OpenFile(filepath.Join(dir, "config.json"), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read bundle: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read bundle: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s/config.json is not a regular file", ErrInvalid, dir)
	}
	data, err := ReadConfig(file)
	if err != nil {
		return nil, fmt.Errorf("read bundle %s: %w", dir, err)
	}
	return data, nil
}

// DecodeBundle parses the content of a config.json. Missing fields stay unset. Capabilities may be a list, as in
// runtime-spec up to 1.0.0-rc4; the list then applies to all five sets. A specification without a process or a root is
// an error.
func DecodeBundle(data []byte) (*specs.Spec, error) {
	data, err := objectCapabilities(data)
	if err != nil {
		return nil, err
	}
	spec := &specs.Spec{}
	if err := json.Unmarshal(data, spec); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	switch {
	case spec.Process == nil || len(spec.Process.Args) == 0:
		return nil, fmt.Errorf("%w: no process", ErrInvalid)
	case spec.Root == nil || spec.Root.Path == "":
		return nil, fmt.Errorf("%w: no root", ErrInvalid)
	}
	if err := checkUser(spec.Process.User); err != nil {
		return nil, err
	}
	if spec.Linux != nil {
		for _, device := range spec.Linux.Devices {
			if err := checkDevice(device); err != nil {
				return nil, err
			}
		}
	}
	return spec, nil
}

// DecodeProcess parses a process in JSON, as for an exec. Capabilities may be a list. A process without a command is an
// error.
func DecodeProcess(data []byte) (*specs.Process, error) {
	if err := CheckConfig(data); err != nil {
		return nil, err
	}
	// The process of a specification takes both forms of capabilities.
	top, err := json.Marshal(map[string]json.RawMessage{"process": data})
	if err != nil {
		return nil, fmt.Errorf("%w: process: %w", ErrInvalid, err)
	}
	if top, err = objectCapabilities(top); err != nil {
		return nil, err
	}
	var spec specs.Spec
	if err := json.Unmarshal(top, &spec); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if spec.Process == nil || len(spec.Process.Args) == 0 {
		return nil, fmt.Errorf("%w: no process", ErrInvalid)
	}
	return spec.Process, checkUser(spec.Process.User)
}

// checkUser refuses the number 2^32-1, which the kernel takes for "no change": the process would stay root.
func checkUser(user specs.User) error {
	if slices.Contains(append(slices.Clone(user.AdditionalGids), user.UID, user.GID), math.MaxUint32) {
		return fmt.Errorf("%w: user or group %d", ErrInvalid, uint32(math.MaxUint32))
	}
	return nil
}

// objectCapabilities converts process.capabilities from a list, and leaves the rest unchanged.
func objectCapabilities(data []byte) ([]byte, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(data, &top); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	// DecodeBundle checks all other forms.
	process, _ := as[map[string]json.RawMessage](top["process"])
	list, ok := as[[]string](process["capabilities"])
	if !ok || list == nil {
		return data, nil
	}
	raw, err := json.Marshal(specs.LinuxCapabilities{Bounding: list, Effective: list, Inheritable: list, Permitted: list, Ambient: list})
	if err != nil {
		return nil, err
	}
	process["capabilities"] = raw
	if raw, err = json.Marshal(process); err != nil {
		return nil, err
	}
	top["process"] = raw
	return json.Marshal(top)
}

// as decodes raw if it is a T.
func as[T any](raw json.RawMessage) (value T, ok bool) {
	ok = json.Unmarshal(raw, &value) == nil
	return value, ok
}

// checkDevice accepts character and block devices and fifos.
func checkDevice(device specs.LinuxDevice) error {
	switch device.Type {
	case "c", "b", "u", "p":
	default:
		return fmt.Errorf("%w: device %q has the type %q, not one of c, b, u, p", ErrInvalid, device.Path, device.Type)
	}
	if device.Path == "" {
		return fmt.Errorf("%w: a device of type %s without a path", ErrInvalid, device.Type)
	}
	return nil
}

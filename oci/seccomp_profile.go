package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// MaxProfile bounds the file of a seccomp profile, in bytes.
const MaxProfile = 1 << 20

// actions are the allowed actions of a profile. The others need a listener, which would be a process of the host.
var actions = []specs.LinuxSeccompAction{
	specs.ActKill, specs.ActKillProcess, specs.ActKillThread, specs.ActTrap, specs.ActErrno, specs.ActTrace, specs.ActAllow, specs.ActLog,
}

// ParseSeccomp parses a profile in the form of the runtime specification, as in a kubelet's directory of profiles. An
// unknown field is an error, because a filter may depend on it. Errors match ErrInvalid, or ErrNotSupported for a
// profile that needs a listener.
func ParseSeccomp(data []byte) (*specs.LinuxSeccomp, error) {
	if len(data) > MaxProfile {
		return nil, fmt.Errorf("%w: seccomp profile of more than %d bytes", ErrInvalid, MaxProfile)
	}
	profile := &specs.LinuxSeccomp{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(profile); err != nil {
		return nil, fmt.Errorf("%w: seccomp profile: %w", ErrInvalid, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: seccomp profile: more than one object", ErrInvalid)
	}
	if err := CheckSeccomp(profile); err != nil {
		return nil, err
	}
	return profile, nil
}

// CheckSeccomp checks the actions of a profile. Errors are as in ParseSeccomp.
func CheckSeccomp(profile *specs.LinuxSeccomp) error {
	if profile.ListenerPath != "" || profile.ListenerMetadata != "" {
		return fmt.Errorf("%w: seccomp profile with a listener on the host", ErrNotSupported)
	}
	if err := checkAction("defaultAction", profile.DefaultAction); err != nil {
		return err
	}
	for i, rule := range profile.Syscalls {
		if len(rule.Names) == 0 {
			return fmt.Errorf("%w: seccomp profile: syscalls[%d] has no names", ErrInvalid, i)
		}
		if err := checkAction(fmt.Sprintf("syscalls[%d].action", i), rule.Action); err != nil {
			return err
		}
	}
	return nil
}

func checkAction(field string, action specs.LinuxSeccompAction) error {
	switch {
	case slices.Contains(actions, action):
		return nil
	case action == specs.ActNotify:
		return fmt.Errorf("%w: seccomp profile: %s %s needs a listener on the host", ErrNotSupported, field, action)
	}
	return fmt.Errorf("%w: seccomp profile: %s %.64q", ErrInvalid, field, action)
}

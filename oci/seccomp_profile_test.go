package oci

import (
	"errors"
	"strings"
	"testing"
)

func TestParseSeccomp(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want error
	}{
		"log everything": {`{"defaultAction": "SCMP_ACT_LOG"}`, nil},
		"fine": {`{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"],
			"syscalls": [{"names": ["read", "write"], "action": "SCMP_ACT_ALLOW"},
			{"names": ["socket"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13, "args": [{"index": 0, "value": 40, "op": "SCMP_CMP_EQ"}]}]}`, nil},
		"nothing":             {``, ErrInvalid},
		"no default":          {`{}`, ErrInvalid},
		"two objects":         {`{"defaultAction": "SCMP_ACT_LOG"} {}`, ErrInvalid},
		"not JSON":            {`defaultAction: SCMP_ACT_LOG`, ErrInvalid},
		"another tool's part": {`{"defaultAction": "SCMP_ACT_ERRNO", "archMap": []}`, ErrInvalid},
		"conditions": {`{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["bpf"], "action": "SCMP_ACT_ALLOW",
			"includes": {"caps": ["CAP_BPF"]}}]}`, ErrInvalid},
		"unknown action":    {`{"defaultAction": "ALLOW"}`, ErrInvalid},
		"a rule of nothing": {`{"defaultAction": "SCMP_ACT_LOG", "syscalls": [{"action": "SCMP_ACT_ALLOW"}]}`, ErrInvalid},
		"notify": {`{"defaultAction": "SCMP_ACT_LOG", "syscalls": [{"names": ["read"], "action": "SCMP_ACT_NOTIFY"}]}`,
			ErrNotSupported},
		"a listener": {`{"defaultAction": "SCMP_ACT_LOG", "listenerPath": "/run/x.sock"}`, ErrNotSupported},
		"large":      {`{"defaultAction": "SCMP_ACT_LOG"}` + strings.Repeat(" ", MaxProfile), ErrInvalid},
	} {
		profile, err := ParseSeccomp([]byte(test.text))
		if !errors.Is(err, test.want) || err == nil && profile.DefaultAction == "" {
			t.Errorf("%s: %+v, %v, want %v", name, profile, err, test.want)
		}
	}
}

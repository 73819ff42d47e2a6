package convert

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bulkhead-project/bulkhead/oci"
)

func TestProcess(t *testing.T) {
	in, err := oci.DecodeProcess([]byte(`{"terminal":true,"args":["sh","-c","x"],"env":["A=b=c","ODD","A=2"," B=\" q \""],"cwd":"/srv",
		"user":{"uid":1,"gid":2,"additionalGids":[3],"umask":18,"username":"x"},"apparmorProfile":"p","commandLine":"c",
		"capabilities":{"bounding":["CAP_KILL","CAP_FUTURE"],"ambient":["cap_kill"]},"noNewPrivileges":true,"oomScoreAdj":-5,
		"rlimits":[{"type":"RLIMIT_NOFILE","soft":2000000,"hard":3000000},{"type":"RLIMIT_CORE","soft":0,"hard":0}],
		"execCPUAffinity":{"initial":"0","final":"0-1, 3"},"ioPriority":{"class":"IOPRIO_CLASS_BE","priority":4}}`))
	if err != nil {
		t.Fatal(err)
	}
	got, ignored, err := Process(in, ProcessOptions{VCPUs: 4})
	if err != nil {
		t.Fatal(err)
	}
	umask, score := uint32(18), -5
	want := &specs.Process{
		Terminal: true, Args: []string{"sh", "-c", "x"}, Env: []string{"A=b=c", "ODD", "A=2", ` B=" q "`}, Cwd: "/srv",
		User:         specs.User{UID: 1, GID: 2, AdditionalGids: []uint32{3}, Umask: &umask},
		Capabilities: &specs.LinuxCapabilities{Bounding: []string{"CAP_KILL"}, Ambient: []string{}}, NoNewPrivileges: true, OOMScoreAdj: &score,
		Rlimits: []specs.POSIXRlimit{
			{Type: "RLIMIT_NOFILE", Soft: 1 << 20, Hard: 1 << 20}, {Type: "RLIMIT_CORE"},
		},
		ExecCPUAffinity: &specs.CPUAffinity{Final: "0-1, 3"},
		IOPriority:      &specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_BE, Priority: 4},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var names []string
	for _, note := range ignored {
		names = append(names, note.Field)
	}
	const all = "process.user.username process.commandLine process.apparmorProfile process.execCPUAffinity.initial " +
		"process.capabilities.bounding process.capabilities.ambient process.rlimits"
	if got := strings.Join(names, " "); got != all {
		t.Errorf("ignored %s", got)
	}
	if len(in.Capabilities.Bounding) != 2 || in.User.Username != "x" {
		t.Errorf("the input changed: %+v", in)
	}
	_, _, err = Process(in, ProcessOptions{Strict: true})
	if !errors.Is(err, oci.ErrNotSupported) || !strings.Contains(err.Error(), "process.user.username") {
		t.Error(err)
	}
	if _, _, err := Process(in, ProcessOptions{VCPUs: 3}); !errors.Is(err, oci.ErrNotSupported) || !strings.Contains(err.Error(), "CPU 3") {
		t.Error(err)
	}
	in.Args[1] = "a\x00"
	if _, _, err := Process(in, ProcessOptions{}); !errors.Is(err, oci.ErrInvalid) || !strings.Contains(err.Error(), "process.args[1]") {
		t.Error(err)
	}
	if _, _, err := Process(nil, ProcessOptions{}); !errors.Is(err, oci.ErrInvalid) {
		t.Error(err)
	}
}

package run

import (
	"net/http"
	"os/exec"
	"runtime"
	"strings"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/version"
)

func (s *server) version(r *http.Request) (any, error) {
	out, err := exec.CommandContext(r.Context(), "qemu-system-x86_64", "--version").Output()
	qemu, _, _ := strings.Cut(string(out), "\n")
	if err != nil {
		qemu = "missing: " + err.Error()
	}
	return api.Version{
		Bulkhead: version.Version, Go: runtime.Version(), QEMU: strings.TrimPrefix(qemu, "QEMU emulator version "),
		Kernel: s.engine.Kinds().Guest.Kernel.Release, Crun: s.engine.Kinds().Guest.Crun.Version, Agent: agentv1.Version,
	}, nil
}

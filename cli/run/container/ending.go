package container

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// endingFlags control how the container stops and whether it restarts.
type endingFlags struct {
	timeout         int64
	signal, restart string
}

// stopTimeout is podman's default, in seconds. A Pod's default is 30.
const stopTimeout = 10

func (f *endingFlags) add(flags *pflag.FlagSet) {
	flags.Int64Var(&f.timeout, "stop-timeout", stopTimeout, "image: seconds between the stop signal and SIGKILL")
	flags.StringVar(&f.signal, "stop-signal", "", "image: signal that stops the container (default: the image's, or SIGTERM)")
	flags.StringVar(&f.restart, "restart", "no", "image: restart policy of the container: no, on-failure or always")
}

func (f *endingFlags) apply(p *podDocument) error {
	if f.timeout < 0 {
		return fmt.Errorf("--stop-timeout %d: must be 0 or more seconds", f.timeout)
	}
	p.Spec.Grace = &f.timeout
	policy, ok := map[string]string{
		"no": "Never", "never": "Never", "on-failure": "OnFailure", "always": "Always", "unless-stopped": "Always",
	}[f.restart]
	switch {
	case strings.HasPrefix(f.restart, "on-failure:"):
		return fmt.Errorf("--restart %q: a Pod cannot limit restarts; use on-failure", f.restart)
	case !ok:
		return fmt.Errorf("--restart %q: use no, on-failure or always", f.restart)
	}
	p.Spec.RestartPolicy = policy
	if f.signal == "" {
		return nil
	}
	name, err := app.SignalName("--stop-signal", f.signal)
	if err != nil {
		return err
	}
	p.only().Lifecycle = &lifecycle{StopSignal: name}
	p.Spec.OS = &named{"linux"} // the API accepts a signal only with an OS
	return nil
}

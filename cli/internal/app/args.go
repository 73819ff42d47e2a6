package app

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exactly demands the arguments that a command's usage names.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, given []string) error {
		switch {
		case len(given) < len(names):
			return fmt.Errorf("%s is missing", names[len(given)])
		case len(given) > len(names):
			return fmt.Errorf("%q is one argument too many", given[len(names)])
		}
		return nil
	}
}

// AtLeast demands them and takes more.
func AtLeast(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, given []string) error {
		if len(given) < len(names) {
			return fmt.Errorf("%s is missing", names[len(given)])
		}
		return nil
	}
}

// AtMost refuses more than those.
func AtMost(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, given []string) error {
		if len(given) > len(names) {
			return fmt.Errorf("%q is one argument too many", given[len(names)])
		}
		return nil
	}
}

// Choice says whether a flag's value is one of those it can be.
func Choice(flag, value string, of ...string) error {
	for _, o := range of {
		if value == o {
			return nil
		}
	}
	return fmt.Errorf("--%s %q: use %s", flag, value, strings.Join(of, " or "))
}

// Positive says whether an interval is long enough to be one: 100 ms.
func Positive(flag string, d time.Duration) error {
	if d < 100*time.Millisecond {
		return fmt.Errorf("--%s %v: must be at least 100ms", flag, d)
	}
	return nil
}

// CPUs takes --cpu, a Pod's word, for --cpus, podman's.
func CPUs(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "cpu" {
		name = "cpus"
	}
	return pflag.NormalizedName(name)
}

// Environment completes variables as --env has them: NAME alone takes the variable of this
// command, and is left out where there is none, as with podman.
func Environment(given []string) (env []string, err error) {
	for _, text := range given {
		name, _, whole := strings.Cut(text, "=")
		switch {
		case name == "":
			return nil, fmt.Errorf("%q: must be NAME=VALUE", text)
		case whole:
			env = append(env, text)
		default:
			if value, there := os.LookupEnv(name); there {
				env = append(env, name+"="+value)
			}
		}
	}
	return env, nil
}

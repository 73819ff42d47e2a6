package app

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exactly requires exactly these arguments.
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

// AtLeast requires these arguments and accepts more.
func AtLeast(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, given []string) error {
		if len(given) < len(names) {
			return fmt.Errorf("%s is missing", names[len(given)])
		}
		return nil
	}
}

// AtMost accepts no more than these arguments.
func AtMost(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, given []string) error {
		if len(given) > len(names) {
			return fmt.Errorf("%q is one argument too many", given[len(names)])
		}
		return nil
	}
}

// Choice returns an error unless a flag's value is one of the given ones.
func Choice(flag, value string, of ...string) error {
	for _, o := range of {
		if value == o {
			return nil
		}
	}
	return fmt.Errorf("--%s %q: use %s", flag, value, strings.Join(of, " or "))
}

// Positive returns an error if an interval is shorter than 100 ms.
func Positive(flag string, d time.Duration) error {
	if d < 100*time.Millisecond {
		return fmt.Errorf("--%s %v: must be at least 100ms", flag, d)
	}
	return nil
}

// CPUs accepts --cpu, as in a Pod, for podman's --cpus.
func CPUs(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "cpu" {
		name = "cpus"
	}
	return pflag.NormalizedName(name)
}

// Environment completes the values of --env. NAME alone takes the value from this process's environment, and is
// left out if it is not set there, as in podman.
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

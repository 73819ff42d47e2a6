package container

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bulkhead-project/bulkhead/api/annotations"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/internal/ulimit"
)

// limitFlags set the container's limits.
type limitFlags struct {
	cpus, memory string
	ulimits      []string
}

func (f *limitFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.cpus, "cpus", "", "image: CPU limit, such as 1.5 processors")
	flags.StringVarP(&f.memory, "memory", "m", "", "image: memory limit, such as 512m (default: half of the host's, from 512 MiB to 2 GiB)")
	flags.StringArrayVar(&f.ulimits, "ulimit", nil,
		"image: limit of each process, NAME=SOFT[:HARD], such as nofile=1024:2048; -1 means no limit")
}

func (f *limitFlags) apply(p *podDocument) error {
	limits := map[string]string{}
	for _, l := range []struct {
		resource, typed string
		read            func(string) (string, error)
	}{{"cpu", f.cpus, cpusOf}, {"memory", f.memory, memoryOf}} {
		if l.typed == "" {
			continue
		}
		quantity, err := l.read(l.typed)
		if err != nil {
			return err
		}
		limits[l.resource] = quantity
	}
	if len(limits) > 0 {
		p.only().Resources = &resources{Limits: limits}
	}
	if len(f.ulimits) == 0 {
		return nil
	}
	all := strings.Join(f.ulimits, " ")
	if _, err := ulimit.ParseAll(all); err != nil {
		return fmt.Errorf("--ulimit %w", err)
	}
	p.annotate(annotations.Ulimits+p.only().Name, all)
	return nil
}

// memoryOf converts --memory to a quantity of a Pod.
func memoryOf(typed string) (string, error) {
	quantity, err := text.Memory(typed)
	if err != nil {
		return "", fmt.Errorf("--memory %w", err)
	}
	return quantity, nil
}

// cpusOf converts --cpus to a quantity of a Pod.
func cpusOf(text string) (string, error) {
	number, milli := strings.CutSuffix(text, "m") // as in a Pod
	n, err := strconv.ParseFloat(number, 64)
	if milli {
		n /= 1000
	}
	if err != nil || !(n >= 0.001 && n <= 1024) {
		return "", fmt.Errorf("--cpus %q: must be a number of processors, such as 1.5", text)
	}
	return strconv.Itoa(int(n*1000+0.5)) + "m", nil
}

// Package container has the flags of run that describe the container of an image, as podman has
// them, and makes the Pod that they mean.
package container

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Flags describe the container of an image. For files the documents do that.
type Flags struct {
	// Stdin is -i: the container reads what this command reads.
	Stdin bool
	// TTY is -t.
	TTY bool
	// PublishAll is -P: the ports that the image exposes are published.
	PublishAll bool
	// SeccompDir is the directory of the engine's seccomp profiles.
	SeccompDir string

	process  processFlags
	limits   limitFlags
	security securityFlags
	identity identityFlags
	ending   endingFlags
	names    nameFlags
	volumes  volumeFlags
}

// group is some of the flags. apply says what they mean in a Pod with one container.
type group interface {
	add(*pflag.FlagSet)
	apply(*podDocument) error
}

func (f *Flags) groups() []group {
	// The security's come after the volumes: where they mount, a read-only root needs nothing to write to.
	return []group{&f.process, &f.limits, &f.identity, &f.ending, &f.names, &f.volumes, &f.security}
}

// Add adds the flags.
func (f *Flags) Add(flags *pflag.FlagSet) {
	of := pflag.NewFlagSet("", pflag.ContinueOnError)
	of.BoolVarP(&f.Stdin, "interactive", "i", false, "image: pass stdin to the container")
	of.BoolVarP(&f.TTY, "tty", "t", false, "image: give the container a terminal")
	of.BoolVarP(&f.PublishAll, "publish-all", "P", false, "image: publish each exposed port of the image on a free port of the host")
	for _, g := range f.groups() {
		g.add(of)
	}
	addAbsent(of)
	of.VisitAll(func(flag *pflag.Flag) { flag.Annotations = map[string][]string{ofImage: nil} })
	flags.AddFlagSet(of)
}

// ofImage marks the flags that are for an image.
const ofImage = "image"

// Refuse names the flags that were given although the run is of files.
func Refuse(cmd *cobra.Command) error {
	var given []string
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if _, yes := flag.Annotations[ofImage]; yes {
			given = append(given, "--"+flag.Name)
		}
	})
	if len(given) == 0 {
		return nil
	}
	return fmt.Errorf("%s: only for an image; with a file, set this in its documents", strings.Join(given, ", "))
}

// Volumes are the volumes with names, which are made if they are missing.
func (f *Flags) Volumes() []string { return f.volumes.names() }

// Package container has the flags of run that describe the container of an image, named as in podman. It builds the
// Pod from them.
package container

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Flags describe the container of an image. With files, the documents describe it.
type Flags struct {
	// Stdin is -i: the container reads this command's stdin.
	Stdin bool
	// TTY is -t: the container gets a terminal.
	TTY bool
	// PublishAll is -P: the exposed ports of the image are published.
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

// group is a part of the flags. apply sets its fields in a Pod with one container.
type group interface {
	add(*pflag.FlagSet)
	apply(*podDocument) error
}

func (f *Flags) groups() []group {
	// security comes after volumes, because a read-only root needs no writable directory where a volume is mounted.
	return []group{&f.process, &f.limits, &f.identity, &f.ending, &f.names, &f.volumes, &f.security}
}

// Add adds the flags to a command.
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

// ofImage is the annotation of flags that apply only to images.
const ofImage = "image"

// Refuse returns an error that names the flags for images that were set for a run of files.
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

// Volumes returns the named volumes. The engine creates missing ones.
func (f *Flags) Volumes() []string { return f.volumes.names() }

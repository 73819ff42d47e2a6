package container

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// identityFlags set the pod's name, labels and annotations.
type identityFlags struct {
	name                            string
	labels, labelFiles, annotations []string
}

func (f *identityFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.name, "name", "", "image: name of the pod (default: the image's name and random letters)")
	flags.StringArrayVarP(&f.labels, "label", "l", nil, "image: label of the pod, KEY=VALUE; ps -l finds it")
	flags.StringArrayVar(&f.labelFiles, "label-file", nil, "image: file with a label on each line; --label overrides it")
	flags.StringArrayVar(&f.annotations, "annotation", nil, "image: annotation of the pod, KEY=VALUE")
}

func (f *identityFlags) apply(p *podDocument) error {
	if f.name != "" {
		p.Metadata.Name = f.name
	}
	var all []string
	for _, name := range f.labelFiles {
		lines, err := linesOf("--label-file", name)
		if err != nil {
			return err
		}
		all = append(all, lines...)
	}
	var err error
	if p.Metadata.Labels, err = pairs("--label", append(all, f.labels...)); err != nil {
		return err
	}
	notes, err := pairs("--annotation", f.annotations)
	for key, value := range notes {
		p.annotate(key, value)
	}
	return err
}

// pairs parses KEY=VALUE. KEY alone gives an empty value, and the last value of a key wins.
func pairs(flag string, texts []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range texts {
		key, value, _ := strings.Cut(text, "=")
		if key == "" {
			return nil, fmt.Errorf("%s %q: must be KEY=VALUE", flag, text)
		}
		out[key] = value
	}
	return out, nil
}

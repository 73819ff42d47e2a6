// Package settings makes a table of what a program can be told into flags, and into arguments again
// for another program that has the same table.
package settings

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// Setting is one thing that a program can be told. Value points to a string, a []string, a bool, an int or
// a time.Duration, and Preset is a value of that kind. One of another kind makes no flag (TestKinds).
type Setting struct {
	Key, Help     string
	Value, Preset any
}

// Table is all that a program can be told, in the order of its documentation.
type Table []Setting

// Add adds the flags to a command's, which sets the values to their presets. A setting of several strings is
// a flag that is repeated.
func (t Table) Add(f *pflag.FlagSet) {
	for _, s := range t {
		switch v := s.Value.(type) {
		case *string:
			f.StringVar(v, s.Key, s.Preset.(string), s.Help)
		case *[]string:
			f.StringArrayVar(v, s.Key, slices.Clone(s.Preset.([]string)), s.Help)
		case *bool:
			f.BoolVar(v, s.Key, s.Preset.(bool), s.Help)
		case *int:
			f.IntVar(v, s.Key, s.Preset.(int), s.Help)
		case *time.Duration:
			f.DurationVar(v, s.Key, s.Preset.(time.Duration), s.Help)
		}
	}
}

// Args are the flags again, with the values that they have now.
func (t Table) Args() (args []string) {
	for _, s := range t {
		flag := "--" + s.Key + "="
		switch v := s.Value.(type) {
		case *string:
			args = append(args, flag+*v)
		case *[]string:
			for _, one := range *v {
				args = append(args, flag+one)
			}
		case *bool:
			args = append(args, flag+strconv.FormatBool(*v))
		case *int:
			args = append(args, flag+strconv.Itoa(*v))
		case *time.Duration:
			args = append(args, flag+v.String())
		}
	}
	return args
}

// Absolute refuses a directory of a setting that is not an absolute path.
func Absolute(key string, dirs ...string) error {
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("%s %q is not an absolute path", key, dir)
		}
	}
	return nil
}

// Logging refuses what no log can be told by log-level and log-format.
func Logging(level, format string) error {
	if err := new(slog.Level).UnmarshalText([]byte(level)); err != nil {
		return fmt.Errorf("log-level %q must be debug, info, warn or error", level)
	}
	if format != "text" && format != "json" {
		return fmt.Errorf("log-format %q must be text or json", format)
	}
	return nil
}

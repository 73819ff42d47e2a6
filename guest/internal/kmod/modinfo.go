package kmod

import (
	"bytes"
	"debug/elf"
	"fmt"
	"strings"
)

// info is what a module says of itself in its .modinfo section.
type info struct {
	depends  []string // names, normalised
	before   []string // what it wishes to be loaded first, if there is such a thing
	vermagic string
}

// parseInfo reads a module's own description, from which depmod makes its
// modules.dep, so that a package's modules can be used without running depmod.
func parseInfo(module []byte) (info, error) {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return info{}, err
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return info{}, fmt.Errorf("not a kernel module: no .modinfo")
	}
	data, err := section.Data()
	if err != nil {
		return info{}, fmt.Errorf("read .modinfo: %w", err)
	}
	var i info
	for entry := range strings.SplitSeq(string(data), "\x00") {
		key, value, _ := strings.Cut(entry, "=")
		switch key {
		case "depends":
			for name := range strings.SplitSeq(value, ",") {
				if name != "" {
					i.depends = append(i.depends, normalise(name))
				}
			}
		case "softdep":
			i.before = append(i.before, softBefore(value)...)
		case "vermagic":
			i.vermagic, _, _ = strings.Cut(value, " ")
		}
	}
	return i, nil
}

// softBefore returns the names after "pre:" in "pre: a b post: c".
func softBefore(value string) []string {
	var names []string
	before := false
	for _, word := range strings.Fields(value) {
		switch word {
		case "pre:", "post:":
			before = word == "pre:"
		default:
			if before {
				names = append(names, normalise(word))
			}
		}
	}
	return names
}

// normalise makes the two spellings of a module's name one, as the kernel does.
func normalise(name string) string { return strings.ReplaceAll(name, "-", "_") }

// Package convert turns an OCI runtime specification, a bundle's config.json, into a Plan: the specification for the
// guest, and the work that a door does on the host for it.
//
// Bundle changes nothing on the host. It asks Options.Host about the sources of mounts and devices, and nothing else.
// Each field of the specification is converted, done by the door, ignored with a Note, or refused by name. The tables
// of package oci/fields say which, and docs/oci-config.md shows them.
//
// A specification is untrusted. No annotation becomes a path or an argument of a command, unless the administrator has
// allowed exactly that file (Options.Allowed).
package convert

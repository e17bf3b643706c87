# The SBOM of an image: those of its programs ($programs, by cyclonedx-gomod) in one, and the Debian packages of its root file system,
# of which $packages is /var/lib/dpkg/status.d, the files with an empty line after each, $os its /etc/os-release, and $licences lines
# PACKAGE<TAB>LICENCE, out of their copyright files.

def fields: split("\n") | map(capture("^(?<key>[A-Za-z_-]+)[:=] *\"?(?<value>[^\"]*)") | {(.key): .value}) | add;

($os | fields) as $os
| ($licences | rtrimstr("\n") / "\n" | map(. / "\t")) as $licences
| [$packages / "\n\n" | .[] | select(test("^Package:"; "m")) | fields
	| "pkg:deb/\($os.ID)/\(.Package)@\(.Version | @uri)?arch=\(.Architecture)&distro=\($os.ID)-\($os.VERSION_ID)" as $purl
	# An advisory is of the source package, whose name and version may be others: NAME or NAME (VERSION).
	| ((.Source // .Package) | sub(" \\((?<version>.*)\\)$"; "@\(.version | @uri)")) as $source
	| .Package as $name
	| {
		"bom-ref": $purl, type: "library", name: $name, version: .Version,
		licenses: [$licences[] | select(.[0] == $name) | {license: {name: .[1]}}],
		purl: "\($purl)&upstream=\($source)",
	} | if .licenses == [] then del(.licenses) else . end] as $debian
| [$programs[].metadata.component] as $mains
| ("fairlead@" + $version) as $image
| $programs[0]
| .metadata = {tools: .metadata.tools, component: {"bom-ref": $image, type: "container", name: "fairlead", version: $version}}
| .components = $mains + ([$programs[].components[]] | unique_by(."bom-ref")) + $debian
	+ [{"bom-ref": $os.ID, type: "operating-system", name: $os.ID, version: $os.VERSION_ID}]
| .dependencies = [{ref: $image, dependsOn: ($mains + $debian | map(."bom-ref"))}] + ([$programs[].dependencies[]] | unique_by(.ref))
| del(.compositions)

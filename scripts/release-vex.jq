# Makes govulncheck's OpenVEX document the same each time, and adds why the programs are not affected by what
# govulncheck finds that they call. Takes $at, the time, and $id.
def known: {
	"GO-2026-4736": {
		justification: "inline_mitigations_already_exist",
		impact_statement: "An UPDATE of a router never reaches GoBGP: the guard in front of it puts a KEEPALIVE in its place, see docs/adr/0018-guard-in-front-of-gobgp.md"
	}
};
.timestamp = $at
| .["@id"] = $id
| .statements[].products[].subcomponents |= sort
| .statements[] |= if .status == "affected" and known[.vulnerability.name] then
	. + {status: "not_affected"} + known[.vulnerability.name] else . end

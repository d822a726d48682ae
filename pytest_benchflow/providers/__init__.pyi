from .credentials import (
    Credential as Credential,
    find_credential as find_credential,
    required_variables as required_variables,
)
from .model_client import (
    CredentialOption as CredentialOption,
    GenericVariables as GenericVariables,
    HomeFile as HomeFile,
    Login as Login,
    ModelClient as ModelClient,
)
from .providers import (
    PROVIDERS as PROVIDERS,
    Provider as Provider,
    WireProtocol as WireProtocol,
    base_url as base_url,
    provider_of_bare as provider_of_bare,
    split_model as split_model,
)
from .routes import CLOUDS as CLOUDS, ModelRoute as ModelRoute, find_route as find_route
from .variables import Sources as Sources
